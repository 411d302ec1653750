#include "common/objective/token_passes.h"

#include <algorithm>

#include "common/kernels/cuda/clipped_kl.h"
#include "common/kernels/parallel_for.h"
#include "common/model/weights/placement.h"

namespace dapd {
namespace {

decltype(&DapdCudaClippedKl) CudaPasses() {
  static const auto passes = reinterpret_cast<decltype(&DapdCudaClippedKl)>(
      CudaSymbol("DapdCudaClippedKl"));
  return passes;
}

void RunOnGpu(const KlChunk& chunk,
              int64_t tokens,
              at::ScalarType gradient,
              KlSums* sums) {
  CudaClippedKlArgs args;
  std::copy(chunk.sources.begin(), chunk.sources.end(), args.sources);
  std::copy(chunk.terms.begin(), chunk.terms.end(), args.terms);
  args.num_sources = static_cast<int>(chunk.sources.size());
  args.num_terms = static_cast<int>(chunk.terms.size());
  args.num_tokens = tokens;
  args.vocabulary = chunk.vocabulary;
  args.scale = chunk.scale;
  args.with_gradient = chunk.with_gradient;
  args.gradient =
      gradient == at::kBFloat16 ? CudaNumber::kBFloat16 : CudaNumber::kFloat32;
  args.sums = sums;
  const int error = CudaPasses()(&args, /*stream=*/nullptr);
  TORCH_CHECK(error == 0,
              "[token_passes] DapdCudaClippedKl did not start: CUDA error ",
              error);
}

}  // namespace

bool HasTokenPasses(at::Device device, size_t num_sources, size_t num_terms) {
  if (device.is_cpu()) return true;
  return device.is_cuda() && num_sources <= kCudaKlMaxSources &&
         num_terms <= kCudaKlMaxTerms && CudaPasses() != nullptr;
}

void RunTokenPasses(at::Device device,
                    const KlChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    KlSums* sums) {
  if (!device.is_cpu()) return RunOnGpu(chunk, tokens, gradient, sums);
  ParallelFor(at::get_num_threads(), tokens, [&](int64_t t) {
    ClippedKlTokens(chunk, t, t + 1, sums);
  });
}

}  // namespace dapd
