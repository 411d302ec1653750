// What clipped_kl_token.cc gives to clipped_kl.cc, once a level.
#pragma once

#include "common/kernels/clipped_kl.h"

namespace dapd {

struct ClippedKlKernel {
  // One token: fills `statistics`, one a source, and `sums`, one a term.
  void (*token)(const KlChunk& chunk,
                int64_t index,
                RowStatistics* statistics,
                KlSums* sums);
  void (*exp)(const float* x, int64_t count, float* result);
};

namespace baseline {
ClippedKlKernel MakeClippedKlKernel();
}
namespace avx2 {
ClippedKlKernel MakeClippedKlKernel();
}
namespace avx512 {
ClippedKlKernel MakeClippedKlKernel();
}
namespace avx512_bf16 {
ClippedKlKernel MakeClippedKlKernel();
}

}  // namespace dapd
