// Matrix products without a gradient. Those on the CPU are computed by
// PackedGemm (kernels/packed_gemm.h), whose results depend neither on the
// number of threads nor on what other rows there are, and which on processors
// that are not Intel's is at least twice as fast as LibTorch's library; those
// on a GPU by LibTorch.
//
// Operands may be transposed views: nothing is copied unless both of a
// matrix's strides are larger than one.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

// a b. [m, k] and [k, n] -> [m, n], one dtype.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b);

// c = a b and c += a b, for c [m, n] whose rows are contiguous. On the CPU each
// of the three is float32 or bfloat16, whatever the others are; no copy is made
// of any, and a bfloat16 c is rounded once. Where the processor multiplies
// bfloat16 pairs and `b` is bfloat16, an `a` that is not transposed is rounded
// to bfloat16, too; sums are float32.
void MatrixProductInto(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);
void AddMatrixProduct(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);

// a b in `dtype`, for a k that may be a number of tokens or of a vocabulary's
// entries. On the CPU a and b are multiplied as they are. On a GPU they have
// one dtype, and the end of a bfloat16 sum is a product of its own: where
// cuBLAS cuts a sum into parts, it may leave out what stands behind its last
// whole step of 64 (kernels/cuda/gemm.cc).
at::Tensor MatrixProductIn(at::ScalarType dtype,
                           const at::Tensor& a,
                           const at::Tensor& b);

// x weight^T + bias: x [N, in], weight [out, in], bias [out] or undefined.
at::Tensor Linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const at::Tensor& bias);

}  // namespace dapd
