// Finds and loads the parts of this build that compute on GPUs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Returns the path of libdapd_cuda.so in ../lib beside the program. Returns
// FAILED_PRECONDITION, which says how to build it, if it does not exist.
absl::StatusOr<std::string> CudaBackendPath();

// Describes the kernels of this repository that were built with the program:
// "by nvcc 13.0.88 for sm_80, sm_90, sm_100, sm_120". Empty if there are none.
const char* CudaKernels();

// Loads CudaBackendPath() and the libraries that it needs, once; `handle` gets
// the result of dlopen. Returns FAILED_PRECONDITION also if one of its
// libraries is missing, and names it.
absl::Status LoadCudaBackend(void** handle);

// Returns a function of libdapd_cuda.so, and loads the library for it; null
// without CUDA.
void* CudaSymbol(const char* name);

// Sets `function` to CudaSymbol(name); returns whether there is such a
// function.
template <typename Function>
bool FindCudaFunction(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(CudaSymbol(name));
  return *function != nullptr;
}

// Returns what to do about a library that the loader did not find, from the
// loader's message. Names the Python package that contains it (NCCL, cuDNN,
// cuBLAS and others).
std::string MissingLibraryAdvice(const std::string& loader_message);

}  // namespace dapd
