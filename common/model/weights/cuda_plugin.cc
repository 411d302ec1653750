// libdapd_cuda.so: loading it registers LibTorch's CUDA backend in the process
// (see CudaLibrary in placement.cc). A library of its own, so that a run on
// the CPU does not load gigabytes of CUDA libraries.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

#include <cstdint>

extern "C" int DapdCudaDeviceCount() {
  return static_cast<int>(c10::cuda::device_count());
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
