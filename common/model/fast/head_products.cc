#include "common/model/fast/head_products.h"

#include "common/model/fast/matrix_product.h"

namespace dapd {

void ComputeLogits(const at::Tensor& hidden,
                   const at::Tensor& head,
                   at::Tensor logits) {
  if (head.is_cpu() || head.scalar_type() == at::kFloat) {
    MatrixProductInto(hidden.to(at::kFloat), head.t(), logits);
  } else {
    at::mm_out(logits, hidden, head.t(), at::kFloat);
  }
}

at::Tensor GradientOfHidden(const at::Tensor& grad_logits,
                            const at::Tensor& head) {
  if (!head.is_cpu()) {
    return MatrixProductIn(
        head.scalar_type(), grad_logits.to(head.scalar_type()), head);
  }
  at::Tensor gradient =
      at::empty({grad_logits.size(0), head.size(1)}, at::kFloat);
  MatrixProductInto(grad_logits, head, gradient);
  return gradient.to(head.scalar_type());
}

}  // namespace dapd
