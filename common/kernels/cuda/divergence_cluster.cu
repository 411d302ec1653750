#include <algorithm>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_block.cuh"
#include "common/kernels/cuda/divergence_cluster.h"
#include "common/kernels/cuda/divergence_plan.h"

namespace dapd {
namespace {

template <typename T, int kWarps, bool kNarrow>
__global__ __launch_bounds__(kWarps* kWarp, 1) void DivergenceInClusters(
    const __grid_constant__ CudaDivergenceArgs args,
    const __grid_constant__ ClusterPlan plan) {
#if defined(DAPD_HAS_CLUSTERS)
  extern __shared__ Group dynamic_rows[];  // aligned as a group is
  __shared__ SharedState<kWarps> shared;
  ClusterBlock<kWarps, kNarrow> block(args, plan, dynamic_rows->value, shared);
  const int64_t clusters = gridDim.x / static_cast<unsigned>(plan.blocks);
  int64_t token = blockIdx.x / static_cast<unsigned>(plan.blocks);
  block.Load(token);
  block.Open();
  for (; token < args.num_tokens; token += clusters) {
    block.template Run<T>(token, token + clusters);
  }
#endif
}

// If the clusters use a smaller share of the multiprocessors than this, they
// are slower than the block kernel, which reads three times as much but uses
// the whole device (docs/cuda.md).
constexpr double kLeastShare = 0.35;

using ClusterKernel = void (*)(CudaDivergenceArgs, ClusterPlan);

// A kernel with the size of its block.
struct ClusterForm {
  ClusterKernel kernel;
  int warps;
  int64_t shared_bytes;  // beside the rows
};

template <typename T, int kWarps, bool kNarrow>
constexpr ClusterForm FormWith() {
  return {DivergenceInClusters<T, kWarps, kNarrow>,
          kWarps,
          static_cast<int64_t>(sizeof(SharedState<kWarps>))};
}

// Returns the kernel for a call. The forms with more warps and with bfloat16
// logits write bfloat16 alone, as the gradients of large models are.
ClusterForm FormOf(const CudaDivergenceArgs& args, bool has_narrow) {
  if (args.gradient == CudaNumber::kFloat32) {
    return FormWith<float, kClusterWarps, false>();
  }
  if (args.cluster_warps == kMoreClusterWarps) {
    return has_narrow ? FormWith<BFloat16, kMoreClusterWarps, true>()
                      : FormWith<BFloat16, kMoreClusterWarps, false>();
  }
  return has_narrow ? FormWith<BFloat16, kClusterWarps, true>()
                    : FormWith<BFloat16, kClusterWarps, false>();
}

struct Launcher {
  ClusterForm form;
  ClusterPlan plan;
  int clusters = 0;  // that run at a time
};

// Returns a launch with `clusters` clusters. `cluster` must live as long as the
// result.
cudaLaunchConfig_t ConfigOf(const ClusterForm& form,
                            const ClusterPlan& plan,
                            int clusters,
                            cudaStream_t stream,
                            cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = static_cast<unsigned>(plan.blocks);
  cluster->val.clusterDim.y = 1;
  cluster->val.clusterDim.z = 1;
  return {dim3(static_cast<unsigned>(plan.blocks * clusters)),
          dim3(static_cast<unsigned>(form.warps * kWarp)),
          static_cast<size_t>(plan.shared_bytes()),
          stream,
          cluster,
          1};
}

// Chooses the smallest cluster that has room for a token: then more clusters
// run at a time, and some load while others compute.
Launcher ChooseClusters(const ClusterForm& form,
                        ClusterPlan plan,
                        int64_t vocabulary) {
  const std::optional<int> bytes =
      DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const std::optional<int> multiprocessors =
      DeviceAttribute(cudaDevAttrMultiProcessorCount);
  if (!bytes.has_value() || !multiprocessors.has_value()) return {};
  const int64_t room = *bytes - form.shared_bytes;
  if (room <= 0) return {};
  cudaFuncSetAttribute(form.kernel,
                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(room));
  cudaFuncSetAttribute(
      form.kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  Launcher chosen;
  for (int blocks = 1; blocks <= kClusterMaxBlocks; blocks *= 2) {
    plan.blocks = blocks;
    plan.slice = ((vocabulary + blocks - 1) / blocks + kClusterGroup - 1) /
                 kClusterGroup * kClusterGroup;
    if (plan.shared_bytes() > room) continue;
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config =
        ConfigOf(form, plan, 1, nullptr, &cluster);
    int active = 0;
    if (cudaOccupancyMaxActiveClusters(&active, form.kernel, &config) !=
            cudaSuccess ||
        active * blocks < kLeastShare * *multiprocessors) {
      continue;
    }
    chosen = {form, plan, active};
    break;
  }
  cudaGetLastError();  // a size that the device refused is not an error of the
                       // launch
  return chosen;
}

Launcher LauncherFor(const CudaDivergenceArgs& args) {
  const std::optional<ClusterPlan> plan = SlotsOf(args);
  if (!plan.has_value() ||
      DeviceAttribute(cudaDevAttrComputeCapabilityMajor).value_or(0) < 9) {
    return {};
  }
  return ChooseClusters(FormOf(args, plan->has_narrow), *plan, args.vocabulary);
}

}  // namespace

int DivergenceClusters(const CudaDivergenceArgs& args) {
  return LauncherFor(args).clusters;
}

std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream) {
  const Launcher launcher = LauncherFor(args);
  if (launcher.clusters == 0) return std::nullopt;
  const auto clusters =
      static_cast<int>(std::min<int64_t>(launcher.clusters, args.num_tokens));
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = ConfigOf(launcher.form,
                                             launcher.plan,
                                             clusters,
                                             static_cast<cudaStream_t>(stream),
                                             &cluster);
  return Answer(
      cudaLaunchKernelEx(&config, launcher.form.kernel, args, launcher.plan));
}

}  // namespace dapd
