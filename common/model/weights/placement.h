// Where and in what precision a model is computed, from the configuration.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tensor/aten.h"

namespace dapd {

// "cpu", "cuda", or "auto": CUDA if this build and machine offer it, else the
// CPU, with a warning where there is a GPU that cannot be used. CONFIG error,
// which says what is missing, if CUDA is asked for and cannot be had, or if
// CUDA_VISIBLE_DEVICES is wrong.
absl::StatusOr<at::Device> ParseDevice(const std::string& name);

// "float32" or "bfloat16".
absl::StatusOr<at::ScalarType> ParsePrecision(const std::string& name);
const char* PrecisionName(at::ScalarType dtype);

// Compute threads of this process; 0: LibTorch's default, which is
// OMP_NUM_THREADS or one per core.
void SetComputeThreads(int64_t num_threads);

// A function of libdapd_cuda.so, which is loaded for it; null without CUDA.
void* CudaSymbol(const char* name);

}  // namespace dapd
