#include "common/objective/head_products.h"

#include "common/kernels/packed_gemm.h"

namespace dapd {
namespace {

// C = A B on the CPU; `b` is the head or its transpose.
void Multiply(const at::Tensor& a,
              const at::Tensor& head,
              bool transpose_head,
              at::Tensor& c) {
  PackedGemm({.m = a.size(0),
              .n = c.size(1),
              .k = a.size(1),
              .a = a.const_data_ptr<float>(),
              .a_stride = a.stride(0),
              .b = head.const_data_ptr(),
              .b_stride = head.stride(0),
              .b_is_bfloat16 = head.scalar_type() == at::kBFloat16,
              .b_is_transposed = transpose_head,
              .c = c.mutable_data_ptr<float>(),
              .c_stride = c.stride(0)},
             at::get_num_threads());
}

}  // namespace

void ComputeLogits(const at::Tensor& hidden,
                   const at::Tensor& head,
                   at::Tensor logits) {
  if (head.is_cpu()) {
    Multiply(hidden.to(at::kFloat).contiguous(),
             head,
             /*transpose_head=*/true,
             logits);
  } else if (head.scalar_type() == at::kFloat) {
    at::mm_out(logits, hidden, head.t());
  } else {
    at::mm_out(logits, hidden, head.t(), at::kFloat);
  }
}

at::Tensor GradientOfHidden(const at::Tensor& grad_logits,
                            const at::Tensor& head) {
  if (!head.is_cpu()) {
    return at::mm(grad_logits.to(head.scalar_type()), head);
  }
  at::Tensor gradient =
      at::empty({grad_logits.size(0), head.size(1)}, at::kFloat);
  Multiply(grad_logits, head, /*transpose_head=*/false, gradient);
  return gradient.to(head.scalar_type());
}

}  // namespace dapd
