// The current CUDA device as libdapd_cuda.so knows it: plain C, so that nothing
// else of the program needs CUDA's headers. Found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kCudaReasonBytes = 256;

extern "C" {
// Below 0: LibTorch cannot use the backend. It looks for one when it is first
// asked about CUDA (at::hasCUDA, at::manual_seed, pinned memory) and keeps the
// answer; this library came too late.
int DapdCudaDeviceCount();
// 0 if the device still computes; else the reason in `error`,
// [kCudaReasonBytes]. After an illegal access, say, every call fails for as
// long as the process lives. Waits for what runs.
int DapdCudaCheck(char* error);
// Bytes of its memory that this process could still take, what LibTorch keeps
// for later included.
int64_t DapdCudaFreeBytes();
// Its memory in all, what this process could still take of it, and what
// LibTorch's allocator has taken for it; 0 where that is not known.
void DapdCudaMemory(int64_t* total, int64_t* free, int64_t* own);
}

}  // namespace dapd
