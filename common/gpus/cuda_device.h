// Accesses the current CUDA device inside libdapd_cuda.so. The interface is
// plain C, so that the rest of the program needs no CUDA headers. The functions
// are found by name (CudaSymbol).
#pragma once

#include <cstdint>

namespace dapd {

inline constexpr int kCudaReasonBytes = 256;

extern "C" {
// Returns a negative number if LibTorch cannot use the backend. LibTorch looks
// for a backend when it is first asked about CUDA (at::hasCUDA,
// at::manual_seed, pinned memory) and keeps the answer; this library was loaded
// too late then.
int DapdCudaDeviceCount();
// Returns 0 if the device still computes; otherwise writes the reason into
// `error`, [kCudaReasonBytes]. After an illegal access, for example, every call
// fails until the process ends. Waits for running work.
int DapdCudaCheck(char* error);
// Returns the bytes of device memory that this process could still take.
// LibTorch's cached memory counts as free.
int64_t DapdCudaFreeBytes();
// Returns the device's total memory, the part that this process could still
// take, and the part that LibTorch's allocator has taken; 0 for an unknown
// value.
void DapdCudaMemory(int64_t* total, int64_t* free, int64_t* own);
}

}  // namespace dapd
