// Decides which tensors the kernels of common/kernels compute with, and as
// which number type.
#pragma once

#include "common/kernels/bfloat16.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns whether CPU kernels compute with `x`: float32 and bfloat16 in host
// memory. For other tensors LibTorch's operations are used.
inline bool HasCpuKernels(const at::Tensor& x) {
  return x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Calls body(T{}) with the kernels' number type of a tensor that HasCpuKernels:
// T is BFloat16 for bfloat16 and float for float32.
template <typename Body>
void WithNumberOf(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kBFloat16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

}  // namespace dapd
