// Tensors rounded to Float8 with a scale for each row of the last dimension,
// bit by bit as common/kernels/float8.h rounds them.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

struct Float8Tensor {
  at::Tensor numbers;  // [..., D] float8_e4m3fn
  at::Tensor scales;   // [..., 1] bfloat16: powers of two
};

// `x` [..., D] is bfloat16 or float32. The scale of a row that is not finite is
// not a number.
Float8Tensor RoundToFloat8(const at::Tensor& x);

// Returns what the rounded numbers stand for, in the dtype of `x`.
at::Tensor ThroughFloat8(const at::Tensor& x);

}  // namespace dapd
