// The table that divergence_token.cc makes for divergence_kernel.cc, once per
// CpuLevel up to avx512: the levels above have nothing more for it.
#pragma once

#include "common/kernels/divergence_kernel.h"

namespace dapd {

// What a token is computed with; kept from token to token by the caller.
struct TokenScratch {
  RowStatistics* statistics;  // one a source
  float** rows;               // one a source
  float* support;             // one an entry of all terms' supports
};

struct DivergenceKernel {
  // One token: fills `sums`, one a term.
  void (*token)(const DivergenceChunk& chunk,
                int64_t index,
                const TokenScratch& scratch,
                DivergenceTokenSums* sums);
  void (*exp)(const float* x, int64_t count, float* result);
  void (*log)(const float* x, int64_t count, float* result);
};

namespace baseline {
DivergenceKernel MakeDivergenceKernel();
}
namespace avx2 {
DivergenceKernel MakeDivergenceKernel();
}
namespace avx512 {
DivergenceKernel MakeDivergenceKernel();
}

}  // namespace dapd
