// A frozen linear layer with an unmerged low-rank update.
#pragma once

#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns LoRA (Hu et al. 2021, eq. 3): x W^T + bias + scale (x A^T) B^T.
// Shapes: x [N, in], weight [out, in], bias [out] or undefined, result [N, out]
// in x's dtype. As in PEFT the update is computed in the adapter's dtype
// (float32) and added before the result is rounded to x's dtype. A pair without
// tensors, or a null pair, is no update.
at::Tensor LoraLinear(const at::Tensor& x,
                      const at::Tensor& weight,
                      const at::Tensor& bias,
                      const LoraPair* pair,
                      double scale);

}  // namespace dapd
