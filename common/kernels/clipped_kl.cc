#include "common/kernels/clipped_kl.h"

#include <vector>

#include "common/kernels/clipped_kl_levels.h"
#include "common/kernels/cpu_features.h"

namespace dapd {
namespace {

ClippedKlKernel Kernel() {
#if defined(__x86_64__)
  switch (CpuLevelInUse()) {
    case CpuLevel::kAvx512Bf16:
    case CpuLevel::kAvx512:
      return avx512::MakeClippedKlKernel();
    case CpuLevel::kAvx2:
      return avx2::MakeClippedKlKernel();
    case CpuLevel::kBaseline:
      break;
  }
#endif
  return baseline::MakeClippedKlKernel();
}

}  // namespace

void ClippedKlTokens(const KlChunk& chunk,
                     int64_t begin,
                     int64_t end,
                     KlSums* sums) {
  const ClippedKlKernel kernel = Kernel();
  std::vector<RowStatistics> statistics(chunk.sources.size());
  const auto num_terms = static_cast<int64_t>(chunk.terms.size());
  for (int64_t t = begin; t < end; ++t) {
    kernel.token(chunk, t, statistics.data(), sums + t * num_terms);
  }
}

void KernelExp(const float* x, int64_t count, float* result) {
  Kernel().exp(x, count, result);
}

}  // namespace dapd
