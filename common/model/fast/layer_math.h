// The element-wise parts of a decoder layer for training: each with its
// gradient by hand. The reference implementation: RmsNorm, ApplyRotary and
// at::silu under autograd.
//
// All arguments are contiguous, but for the inputs of NormAndRotate and
// GatedProduct, whose rows may be parts of wider ones; all results are
// contiguous, but for `room`, and in the first argument's dtype. On the CPU, in
// float32 and bfloat16, these are the kernels of kernels/training_rows.h, which
// round a result once, on a GPU those of device_rows.h; for what those do not
// take, and everywhere else, tensor operations.
//
// `room`: columns behind those of a result that its memory has, too, for a
// product that writes into them (projection_group.h); 0: none.
#pragma once

#include "common/model/rope.h"
#include "common/tensor/aten.h"

namespace dapd {

// RMSNorm of each row (decoder_layer.h).
at::Tensor Norm(const at::Tensor& x,
                const at::Tensor& weight,
                double eps,
                int64_t room = 0);

// *sum += x, then Norm(*sum, weight, eps, room).
at::Tensor AddAndNorm(const at::Tensor& x,
                      const at::Tensor& weight,
                      double eps,
                      int64_t room,
                      at::Tensor* sum);

// grad_x += the gradient of x, where `grad` is that of Norm(x, weight, eps):
//   r (g - x r^2 mean(g x)),  g = grad weight, r = 1 / sqrt(mean(x^2) + eps).
void AddNormBackward(const at::Tensor& grad,
                     const at::Tensor& x,
                     const at::Tensor& weight,
                     double eps,
                     at::Tensor* grad_x);

// `heads` [N, heads, head_dim]: each normalised by `norm` [head_dim] (not if
// undefined), then turned by its row's angles.
at::Tensor NormAndRotate(const at::Tensor& heads,
                         const at::Tensor& norm,
                         double eps,
                         const RotaryAngles& angles);

// The gradient of `heads`, where `grad` is that of the result; may be written
// over `grad`.
at::Tensor NormAndRotateBackward(at::Tensor grad,
                                 const at::Tensor& heads,
                                 const at::Tensor& norm,
                                 double eps,
                                 const RotaryAngles& angles);

// SwiGLU (Shazeer 2020): silu(gate) * up.
at::Tensor GatedProduct(const at::Tensor& gate,
                        const at::Tensor& up,
                        int64_t room = 0);

// Replaces `gate` and `up` by their gradients, where `grad` is that of
// GatedProduct(gate, up).
void GatedProductBackward(const at::Tensor& grad,
                          at::Tensor* gate,
                          at::Tensor* up);

}  // namespace dapd
