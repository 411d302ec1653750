// The frozen LM head's two products, with float32 logits whatever the head's
// own precision: rounding the logits to bfloat16 would cost several percent of
// the gradient, which is a difference of nearly equal distributions.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

// hidden head^T into `logits` [m, V] float32, rows contiguous. `hidden` [m, d]
// and `head` [V, d] have one dtype, float32 or bfloat16, and one device.
void ComputeLogits(const at::Tensor& hidden,
                   const at::Tensor& head,
                   at::Tensor logits);

// grad_logits head, [m, d] in the head's dtype. `grad_logits` [m, V] is float32
// or the head's dtype; a bfloat16 head may round it.
at::Tensor GradientOfHidden(const at::Tensor& grad_logits,
                            const at::Tensor& head);

}  // namespace dapd
