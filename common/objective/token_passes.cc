#include "common/objective/token_passes.h"

#include <algorithm>

#include "common/gpus/cuda_backend.h"
#include "common/kernels/cuda/divergence_kernel.h"
#include "common/kernels/parallel_for.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

decltype(&DapdCudaDivergence) CudaPasses() {
  static const auto passes = reinterpret_cast<decltype(&DapdCudaDivergence)>(
      CudaSymbol("DapdCudaDivergence"));
  return passes;
}

CudaDivergenceArgs ArgsOf(const DivergenceChunk& chunk,
                          at::ScalarType gradient) {
  CudaDivergenceArgs args;
  std::copy(chunk.sources.begin(), chunk.sources.end(), args.sources);
  std::copy(chunk.derived.begin(), chunk.derived.end(), args.derived);
  std::copy(chunk.terms.begin(), chunk.terms.end(), args.terms);
  args.num_sources = static_cast<int>(chunk.sources.size());
  args.num_derived = static_cast<int>(chunk.derived.size());
  args.num_terms = static_cast<int>(chunk.terms.size());
  args.vocabulary = chunk.vocabulary;
  args.scale = chunk.scale;
  args.with_gradient = chunk.with_gradient;
  args.cluster_warps = chunk.cluster_warps;
  args.gradient =
      gradient == at::kBFloat16 ? CudaNumber::kBFloat16 : CudaNumber::kFloat32;
  return args;
}

void RunOnGpu(const DivergenceChunk& chunk,
              int64_t tokens,
              at::ScalarType gradient,
              DivergenceTokenSums* sums) {
  CudaDivergenceArgs args = ArgsOf(chunk, gradient);
  args.num_tokens = tokens;
  args.sums = sums;
  CheckLaunch(CudaPasses()(&args, /*stream=*/nullptr), "the loss");
}

}  // namespace

bool HasTokenPasses(at::Device device, const TokenPassCounts& counts) {
  if (device.is_cpu()) return true;
  return device.is_cuda() && counts.sources <= kCudaMaxSources &&
         counts.derived <= kCudaMaxDerived && counts.terms <= kCudaMaxTerms &&
         counts.support <= kCudaMaxSupport && CudaPasses() != nullptr;
}

int64_t TokenPassesAtATime(at::Device device,
                           const DivergenceChunk& chunk,
                           at::ScalarType gradient) {
  if (device.is_cpu()) return 1;
  static const auto at_a_time =
      reinterpret_cast<decltype(&DapdCudaDivergenceTokens)>(
          CudaSymbol("DapdCudaDivergenceTokens"));
  TORCH_CHECK(at_a_time != nullptr,
              "[token_passes] libdapd_cuda.so has no DapdCudaDivergenceTokens");
  const CudaDivergenceArgs args = ArgsOf(chunk, gradient);
  return std::max<int64_t>(1, at_a_time(&args));
}

void RunTokenPasses(at::Device device,
                    const DivergenceChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    DivergenceTokenSums* sums) {
  if (!device.is_cpu()) return RunOnGpu(chunk, tokens, gradient, sums);
  ParallelFor(at::get_num_threads(), tokens, [&](int64_t t) {
    DivergenceTokens(chunk, t, t + 1, sums);
  });
}

}  // namespace dapd
