// What a build has for GPUs: the CUDA backend is a library of its own, and one
// build's programs run with it or without.
#pragma once

#include <string>

namespace dapd {

// libdapd_cuda.so in ../lib beside the program; empty if it is not there.
std::string CudaLibraryPath();

// "cuda" with that library, "cpu" without.
const char* Flavour();

}  // namespace dapd
