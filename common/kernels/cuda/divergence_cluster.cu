#include <algorithm>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_block.cuh"
#include "common/kernels/cuda/divergence_cluster.h"
#include "common/kernels/cuda/divergence_plan.h"

namespace dapd {
namespace {

template <typename T>
__global__ __launch_bounds__(kClusterThreads, 1) void DivergenceInClusters(
    const __grid_constant__ CudaDivergenceArgs args,
    const __grid_constant__ ClusterPlan plan) {
#ifdef DAPD_HAS_CLUSTERS
  extern __shared__ Group dynamic_rows[];  // aligned as a group is
  __shared__ SharedState shared;
  ClusterBlock block(args, plan, dynamic_rows->value, shared);
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

struct Launcher {
  ClusterPlan plan;
  int clusters = 0;  // that run at a time
};

// Returns a launch with `clusters` clusters. `cluster` must live as long as the
// result.
cudaLaunchConfig_t ConfigOf(const ClusterPlan& plan,
                            int clusters,
                            cudaStream_t stream,
                            cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = static_cast<unsigned>(plan.blocks);
  cluster->val.clusterDim.y = 1;
  cluster->val.clusterDim.z = 1;
  return {dim3(static_cast<unsigned>(plan.blocks * clusters)),
          dim3(kClusterThreads),
          static_cast<size_t>(plan.shared_bytes()),
          stream,
          cluster,
          1};
}

// Chooses the smallest cluster that has room for a token: then more clusters
// run at a time, and some load while others compute.
template <typename Kernel>
Launcher ChooseClusters(Kernel* kernel, ClusterPlan plan, int64_t vocabulary) {
  const std::optional<int> bytes =
      DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const std::optional<int> multiprocessors =
      DeviceAttribute(cudaDevAttrMultiProcessorCount);
  if (!bytes.has_value() || !multiprocessors.has_value()) return {};
  const int64_t room = *bytes - static_cast<int64_t>(sizeof(SharedState));
  if (room <= 0) return {};
  cudaFuncSetAttribute(kernel,
                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(room));
  cudaFuncSetAttribute(
      kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  Launcher chosen;
  for (int blocks = 1; blocks <= kClusterMaxBlocks; blocks *= 2) {
    plan.blocks = blocks;
    plan.slice = ((vocabulary + blocks - 1) / blocks + kClusterGroup - 1) /
                 kClusterGroup * kClusterGroup;
    if (plan.shared_bytes() > room) continue;
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config = ConfigOf(plan, 1, nullptr, &cluster);
    int active = 0;
    if (cudaOccupancyMaxActiveClusters(&active, kernel, &config) !=
            cudaSuccess ||
        active * blocks < kLeastShare * *multiprocessors) {
      continue;
    }
    chosen = {plan, active};
    break;
  }
  cudaGetLastError();  // a size that the device refused is not an error of the
                       // launch
  return chosen;
}

template <typename T>
Launcher LauncherFor(const CudaDivergenceArgs& args) {
  const std::optional<ClusterPlan> plan = SlotsOf(args);
  if (!plan.has_value() ||
      DeviceAttribute(cudaDevAttrComputeCapabilityMajor).value_or(0) < 9) {
    return {};
  }
  return ChooseClusters(DivergenceInClusters<T>, *plan, args.vocabulary);
}

}  // namespace

int DivergenceClusters(const CudaDivergenceArgs& args) {
  return args.gradient == CudaNumber::kFloat32
             ? LauncherFor<float>(args).clusters
             : LauncherFor<BFloat16>(args).clusters;
}

std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream) {
  const auto launch = [&](auto number) -> std::optional<int> {
    using T = decltype(number);
    const Launcher launcher = LauncherFor<T>(args);
    if (launcher.clusters == 0) return std::nullopt;
    const auto clusters =
        static_cast<int>(std::min<int64_t>(launcher.clusters, args.num_tokens));
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config = ConfigOf(
        launcher.plan, clusters, static_cast<cudaStream_t>(stream), &cluster);
    return Answer(cudaLaunchKernelEx(
        &config, DivergenceInClusters<T>, args, launcher.plan));
  };
  return args.gradient == CudaNumber::kFloat32 ? launch(float{})
                                               : launch(BFloat16{});
}

}  // namespace dapd
