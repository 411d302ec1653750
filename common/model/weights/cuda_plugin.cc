// libdapd_cuda.so: loading it registers LibTorch's CUDA backend in the process
// (see CudaLibrary in placement.cc). A library of its own, so that a run on
// the CPU does not load gigabytes of CUDA libraries.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

// Below 0: LibTorch cannot use the backend. It looks for one when it is first
// asked about CUDA (at::hasCUDA, at::manual_seed, pinned memory) and keeps the
// answer; this library came too late.
extern "C" int DapdCudaDeviceCount() {
  if (!at::detail::getCUDAHooks().hasCUDART()) return -1;
  return static_cast<int>(c10::cuda::device_count());
}

// 0 if the current device still computes; else the reason in `error`, [256].
// After an illegal access, say, every call fails for as long as the process
// lives. Waits for what runs.
extern "C" int DapdCudaCheck(char* error) {
  const cudaError_t state = cudaDeviceSynchronize();
  const bool is_capturing = state >= cudaErrorStreamCaptureUnsupported &&
                            state <= cudaErrorStreamCaptureWrongThread;
  if (state == cudaSuccess || state == cudaErrorMemoryAllocation ||
      is_capturing) {
    return 0;
  }
  std::snprintf(error, 256, "%s", cudaGetErrorString(state));
  return 1;
}

// Bytes of memory on the current device that this process could still take,
// what LibTorch keeps for later included.
extern "C" int64_t DapdCudaFreeBytes() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess
             ? static_cast<int64_t>(free)
             : 0;
}

// The current device's memory in all, what this process could still take of it,
// and what LibTorch's allocator has taken for it; 0 where that is not known.
extern "C" void DapdCudaMemory(int64_t* total, int64_t* free, int64_t* own) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    free_bytes = 0;
    total_bytes = 0;
  }
  *total = static_cast<int64_t>(total_bytes);
  *free = static_cast<int64_t>(free_bytes);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
      c10::cuda::current_device());
  *own = stats
             .reserved_bytes[static_cast<size_t>(
                 c10::CachingAllocator::StatType::AGGREGATE)]
             .current;
}
