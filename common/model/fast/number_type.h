// The kernels' types for the numbers of a tensor.
#pragma once

#include "common/kernels/bfloat16.h"
#include "common/tensor/aten.h"

namespace dapd {

// body(T{}), T being BFloat16 for a tensor of bfloat16 and float for others.
template <typename Body>
void WithNumberOf(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kBFloat16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

}  // namespace dapd
