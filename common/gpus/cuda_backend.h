// What this build has to compute with on GPUs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// libdapd_cuda.so in ../lib beside the program. FAILED_PRECONDITION if it is
// not there, with what makes it.
absl::StatusOr<std::string> CudaBackendPath();

// The kernels of this repository that were built with the program: "by nvcc
// 13.0.88 for sm_80, sm_90, sm_100, sm_120". Empty: none were.
const char* CudaKernels();

// Loads CudaBackendPath() with all that it needs, once; what `handle` gets is
// dlopen's. FAILED_PRECONDITION also where one of its libraries is missing, by
// name.
absl::Status LoadCudaBackend(void** handle);

// A function of libdapd_cuda.so, which is loaded for it; null without CUDA.
void* CudaSymbol(const char* name);

// Sets `function` to CudaSymbol(name); whether that is one.
template <typename Function>
bool FindCudaFunction(const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(CudaSymbol(name));
  return *function != nullptr;
}

// What to do about a library that the loader did not find, from its message:
// names the Python package that NCCL, cuDNN, cuBLAS and the like come in.
std::string MissingLibraryAdvice(const std::string& loader_message);

}  // namespace dapd
