// Declares the table that divergence_token.cc makes for divergence_kernel.cc,
// once per CpuLevel up to avx512. Higher levels have nothing that would help
// it.
#pragma once

#include "common/kernels/divergence_kernel.h"

namespace dapd {

// Memory in which a token is computed. The caller reuses it from token to
// token.
struct TokenScratch {
  RowStatistics* statistics;  // one per source
  float** rows;               // one per source
  float* support;             // one number per entry of all terms' supports
};

struct DivergenceKernel {
  // Computes one token and fills `sums`, one per term.
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
