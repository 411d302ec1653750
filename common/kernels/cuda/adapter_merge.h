// Computes merged = base + scale * B A (Hu et al. 2021, eq. 3) for the weights
// of a model in one pass. Each weight is read once and written once, to other
// memory, so the base stays unchanged; base and update are added in float32 and
// rounded once. cuBLASLt computes it as a product with the base as its second
// summand.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// One weight. All matrices have the launch's number type and no gaps.
struct AdapterMerge {
  const void* base = nullptr;  // [out, in]
  const void* a = nullptr;     // [rank, in]
  const void* b = nullptr;     // [out, rank]
  void* merged = nullptr;      // [out, in]
  int64_t out = 0;
  int64_t in = 0;
  int64_t rank = 0;
  float scale = 0.0F;
};

extern "C" {
// Returns the bytes of device memory that a merge works in.
int64_t DapdCudaMergeWorkspace();
// Launches `count` merges. Returns 0, or another number with the reason in
// `error` (kCudaErrorBytes).
int DapdCudaMergeAdapter(const AdapterMerge* merges,
                         int64_t count,
                         CudaNumber number,
                         void* workspace,
                         void* stream,
                         char* error);
}

}  // namespace dapd
