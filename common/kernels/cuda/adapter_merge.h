// merged = base + scale * B A (Hu et al. 2021, eq. 3) for the weights of a
// model in one pass: each is read once and written once, elsewhere, so that the
// base stays what it is; base and update are added in float32 and rounded once.
// A product of cuBLASLt with the base as its second summand.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/launch.h"

namespace dapd {

// One weight, all matrices in the launch's number type, without gaps.
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
// Bytes of device memory that a merge works in.
int64_t DapdCudaMergeWorkspace();
// Launches `count` merges. 0, or another number with the reason in `error`
// (kCudaErrorBytes).
int DapdCudaMergeAdapter(const AdapterMerge* merges,
                         int64_t count,
                         CudaNumber number,
                         void* workspace,
                         void* stream,
                         char* error);
}

}  // namespace dapd
