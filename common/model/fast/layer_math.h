// The element-wise functions of a decoder layer, each with its gradient by
// hand. The reference implementations are RmsNorm, ApplyRotary and at::silu
// under autograd.
//
// All arguments are contiguous, except the inputs of NormAndRotate and
// GatedProduct, whose rows may be parts of wider ones. All results have the
// first argument's dtype and are contiguous, except for `room`. On the CPU, in
// float32 and bfloat16, the kernels of kernels/training_rows.h compute them and
// round a result once; on a GPU the kernels of device_rows.h do. Tensor
// operations compute the rest.
//
// `room` is the number of columns that the memory of a result has behind its
// own, for a product that writes into them (layer_projections.h); 0: none.
#pragma once

#include "common/model/rope.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns the RMSNorm of each row (decoder_layer.h).
at::Tensor Norm(const at::Tensor& x,
                const at::Tensor& weight,
                double eps,
                int64_t room = 0);

// Adds x to *sum, then returns Norm(*sum, weight, eps, room). Norm reads the
// rounded sum, so the bits are the same as with two calls.
at::Tensor AddAndNorm(const at::Tensor& x,
                      const at::Tensor& weight,
                      double eps,
                      int64_t room,
                      at::Tensor* sum);

// Adds to grad_x the gradient of x, where `grad` is the gradient of Norm(x,
// weight, eps):
//   r (g - x r^2 mean(g x)),  g = grad weight, r = 1 / sqrt(mean(x^2) + eps).
void AddNormBackward(const at::Tensor& grad,
                     const at::Tensor& x,
                     const at::Tensor& weight,
                     double eps,
                     at::Tensor* grad_x);

// Returns `heads` [N, heads, head_dim], each head normalised by `norm`
// [head_dim] (undefined: not normalised) and turned by its row's angles.
at::Tensor NormAndRotate(const at::Tensor& heads,
                         const at::Tensor& norm,
                         double eps,
                         const RotaryAngles& angles);

// Returns the gradient of `heads`, where `grad` is the gradient of the result.
// May write over `grad`.
at::Tensor NormAndRotateBackward(at::Tensor grad,
                                 const at::Tensor& heads,
                                 const at::Tensor& norm,
                                 double eps,
                                 const RotaryAngles& angles);

// Returns silu(gate) * up: SwiGLU (Shazeer 2020).
at::Tensor GatedProduct(const at::Tensor& gate,
                        const at::Tensor& up,
                        int64_t room = 0);

// Replaces `gate` and `up` by their gradients, where `grad` is the gradient of
// GatedProduct(gate, up).
void GatedProductBackward(const at::Tensor& grad,
                          at::Tensor* gate,
                          at::Tensor* up);

}  // namespace dapd
