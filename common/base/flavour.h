// The GPU support of a build. The CUDA backend is a separate library, and the
// same programs run with it or without it.
#pragma once

#include <string>

namespace dapd {

// libdapd_cuda.so in ../lib beside the program; empty if it is not there.
std::string CudaLibraryPath();

// "cuda" with that library, "cpu" without.
const char* Flavour();

}  // namespace dapd
