// Finds our kernels by their names and measures their time.
#pragma once

#include <chrono>

#include "common/gpus/cuda_backend.h"
#include "common/tensor/aten.h"

namespace dapd {

template <typename Function>
Function* Find(const char* name) {
  auto* found = reinterpret_cast<Function*>(CudaSymbol(name));
  TORCH_CHECK(found != nullptr, "[gpu_kernels_benchmark] no ", name);
  return found;
}

inline at::TensorOptions OnGpu(at::ScalarType dtype) {
  return at::TensorOptions().device(at::kCUDA).dtype(dtype);
}

inline void WaitForGpu() { at::zeros({1}, OnGpu(at::kFloat)).item<float>(); }

// Returns the seconds of one call in a row of `calls` calls.
template <typename Call>
double Time(int calls, const Call& call) {
  WaitForGpu();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  WaitForGpu();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
             .count() /
         calls;
}

}  // namespace dapd
