// libdapd_cuda.so: loading it registers LibTorch's CUDA backend in the process
// (see CudaLibrary in placement.cc). A library of its own, so that a run on
// the CPU does not load gigabytes of CUDA libraries.

#include <c10/cuda/CUDAFunctions.h>

extern "C" int DapdCudaDeviceCount() {
  return static_cast<int>(c10::cuda::device_count());
}
