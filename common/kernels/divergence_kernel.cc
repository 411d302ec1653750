#include "common/kernels/divergence_kernel.h"

#include <vector>

#include "common/kernels/cpu_level_tables.h"
#include "common/kernels/divergence_cpu_levels.h"

namespace dapd {
namespace {

const DivergenceKernel& Kernel() {
  static CpuLevelTables<DivergenceKernel> tables({
    .baseline = baseline::MakeDivergenceKernel,
#if defined(__x86_64__)
    .avx2 = avx2::MakeDivergenceKernel, .avx512 = avx512::MakeDivergenceKernel,
#endif
  });
  static const DivergenceKernel& kernel = tables.Of(CpuLevelInUse());
  return kernel;
}

}  // namespace

void DivergenceTokens(const DivergenceChunk& chunk,
                      int64_t begin,
                      int64_t end,
                      DivergenceTokenSums* sums) {
  const DivergenceKernel& kernel = Kernel();
  std::vector<RowStatistics> statistics(chunk.sources.size());
  std::vector<float*> rows(chunk.sources.size());
  size_t support_size = 0;
  for (const DivergenceTerm& term : chunk.terms) {
    support_size += static_cast<size_t>(term.support_size);
  }
  std::vector<float> support(support_size);
  const TokenScratch scratch = {statistics.data(), rows.data(), support.data()};
  const auto num_terms = static_cast<int64_t>(chunk.terms.size());
  for (int64_t t = begin; t < end; ++t) {
    kernel.token(chunk, t, scratch, sums + t * num_terms);
  }
}

void KernelExp(const float* x, int64_t count, float* result) {
  Kernel().exp(x, count, result);
}

void KernelLog(const float* x, int64_t count, float* result) {
  Kernel().log(x, count, result);
}

}  // namespace dapd
