// This file is part of libdapd_cuda.so: loading that library (cuda_backend.h)
// registers LibTorch's CUDA backend in the process. It is a separate library so
// that a run on the CPU does not load gigabytes of CUDA libraries.
#include "common/gpus/cuda_device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace dapd {

extern "C" int DapdCudaDeviceCount() {
  if (!at::detail::getCUDAHooks().hasCUDART()) return -1;
  return static_cast<int>(c10::cuda::device_count());
}

extern "C" int DapdCudaCheck(char* error) {
  const cudaError_t state = cudaDeviceSynchronize();
  cudaGetLastError();  // otherwise LibTorch attributes it to its next launch
  const bool is_capturing = state >= cudaErrorStreamCaptureUnsupported &&
                            state <= cudaErrorStreamCaptureWrongThread;
  if (state == cudaSuccess || state == cudaErrorMemoryAllocation ||
      is_capturing) {
    return 0;
  }
  std::snprintf(error, kCudaReasonBytes, "%s", cudaGetErrorString(state));
  return 1;
}

extern "C" int64_t DapdCudaFreeBytes() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess
             ? static_cast<int64_t>(free)
             : 0;
}

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

}  // namespace dapd
