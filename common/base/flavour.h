// The GPU support of a build. The CUDA backend is a separate library, and the
// same programs run with it or without it.
#pragma once

#include <string>

namespace dapd {

// Returns the path of libdapd_cuda.so in ../lib beside the program; empty if
// the library is not there.
std::string CudaLibraryPath();

// Returns "cuda" with that library, "cpu" without it.
const char* Flavour();

}  // namespace dapd
