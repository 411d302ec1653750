// What a build has for GPUs: the CUDA backend is a library of its own, and one
// build's programs run with it or without.
#pragma once

#include <string>

namespace dapd {

// libdapd_cuda.so in ../lib beside the program; empty if it is not there.
std::string CudaLibraryPath();

// "cuda" with that library, "cpu" without.
const char* Flavour();

// The compute capabilities that the library has kernels of this repository for,
// "8.0 9.0". Empty without the library, or where nvcc was missing when it was
// built: LibTorch's kernels then compute everything.
std::string OwnCudaKernels();

}  // namespace dapd
