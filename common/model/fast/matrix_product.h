// Matrix products without autograd. On the CPU PackedGemm
// (kernels/packed_gemm.h) computes them. Its results depend neither on the
// number of threads nor on the other rows, and on processors other than Intel's
// it is at least twice as fast as LibTorch's library. On a GPU LibTorch
// computes them.
//
// Operands may be transposed views: nothing is copied unless both strides of a
// matrix are larger than one.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

// Returns a b: [m, k] and [k, n] -> [m, n], one dtype.
at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b);

// Compute c = a b and c += a b, for c [m, n] whose rows are contiguous. On the
// CPU each of a, b and c may be float32 or bfloat16; none is copied, and a
// bfloat16 c is rounded once. If the processor multiplies pairs of bfloat16 and
// `b` is bfloat16, an `a` that is not transposed is rounded to bfloat16, too;
// sums are float32.
void MatrixProductInto(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);
void AddMatrixProduct(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);

// Returns a b in `dtype`, where k may be a number of tokens or of the entries
// of a vocabulary. On the CPU a and b are multiplied as they are. On a GPU they
// have one dtype, and the end of a bfloat16 sum is a product of its own: if
// cuBLAS cuts a sum into parts, it may leave out the terms behind the last
// whole step of 64 (kernels/cuda/gemm.cc).
at::Tensor MatrixProductIn(at::ScalarType dtype,
                           const at::Tensor& a,
                           const at::Tensor& b);

// Returns x weight^T + bias: x [N, in], weight [out, in], bias [out] or
// undefined.
at::Tensor Linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const at::Tensor& bias);

// The two products of the frozen LM head. Logits are float32 whatever the
// head's own precision, unless a caller asks for less: rounding them to
// bfloat16 would cost several percent of the gradient, which is a difference of
// nearly equal distributions.

// Writes hidden head^T into `logits` [m, V], rows contiguous: float32 or, on a
// GPU, the dtype of `head`. `hidden` [m, d] and `head` [V, d] have one dtype,
// float32 or bfloat16, and one device.
void ComputeLogits(const at::Tensor& hidden,
                   const at::Tensor& head,
                   at::Tensor logits);

// Returns grad_logits head, [m, d] in the head's dtype. `grad_logits` [m, V] is
// float32 or has the head's dtype; for a bfloat16 head on a GPU it is rounded
// to bfloat16 first.
at::Tensor GradientOfHidden(const at::Tensor& grad_logits,
                            const at::Tensor& head);

}  // namespace dapd
