#include "common/model/fast/matrix_product.h"

#include "common/kernels/cuda/product.h"
#include "common/kernels/packed_gemm.h"
#include "common/model/cpu_kernels.h"

namespace dapd {
namespace {

// The layout of a matrix in memory.
struct Layout {
  at::Tensor matrix;  // with one stride of 1
  int64_t stride = 0;
  bool is_transposed = false;
};

Layout LayoutOf(const at::Tensor& matrix) {
  // The transpose of one column lies in memory like a row, too. It counts as
  // transposed, like the transpose of several columns, since PackedGemm may
  // round an operand that is not transposed.
  const bool was_column = matrix.stride(0) == 1 && matrix.size(1) > 1;
  if (matrix.stride(1) == 1 && !was_column) {
    return {matrix, matrix.stride(0), false};
  }
  if (matrix.stride(0) == 1) return {matrix, matrix.stride(1), true};
  const at::Tensor copy = matrix.contiguous();
  return {copy, copy.size(1), false};
}

bool IsBFloat16(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16;
}

// Computes c by PackedGemm if that takes all three dtypes. Returns whether it
// did.
bool TryPackedGemm(const at::Tensor& a,
                   const at::Tensor& b,
                   bool adds,
                   at::Tensor& c) {
  if (!HasCpuKernels(a) || !HasCpuKernels(b) || !HasCpuKernels(c)) return false;
  if (a.numel() == 0) {
    if (!adds) c.zero_();
    return true;
  }
  const Layout left = LayoutOf(a);
  const Layout right = LayoutOf(b);
  TORCH_CHECK(a.size(1) == b.size(0) && c.size(0) == a.size(0) &&
                  c.size(1) == b.size(1) && c.stride(1) == 1,
              "[matrix_product] shapes ",
              a.sizes(),
              ", ",
              b.sizes(),
              " and ",
              c.sizes(),
              " do not match");
  PackedGemm({.m = a.size(0),
              .n = b.size(1),
              .k = a.size(1),
              .a = left.matrix.const_data_ptr(),
              .a_stride = left.stride,
              .a_is_bfloat16 = IsBFloat16(a),
              .a_is_transposed = left.is_transposed,
              .b = right.matrix.const_data_ptr(),
              .b_stride = right.stride,
              .b_is_bfloat16 = IsBFloat16(b),
              .b_is_transposed = right.is_transposed,
              .c = c.mutable_data_ptr(),
              .c_stride = c.stride(0),
              .c_is_bfloat16 = IsBFloat16(c),
              .adds = adds},
             at::get_num_threads());
  return true;
}

at::Tensor DeviceProductIn(at::ScalarType dtype,
                           const at::Tensor& a,
                           const at::Tensor& b) {
  return a.scalar_type() == dtype ? at::mm(a, b) : at::mm(a, b, dtype);
}

}  // namespace

at::Tensor MatrixProduct(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  MatrixProductInto(a, b, c);
  return c;
}

void MatrixProductInto(const at::Tensor& a,
                       const at::Tensor& b,
                       at::Tensor& c) {
  if (!TryPackedGemm(a, b, /*adds=*/false, c)) at::mm_out(c, a, b);
}

void AddMatrixProduct(const at::Tensor& a, const at::Tensor& b, at::Tensor& c) {
  if (!TryPackedGemm(a, b, /*adds=*/true, c)) c.addmm_(a, b);
}

at::Tensor MatrixProductIn(at::ScalarType dtype,
                           const at::Tensor& a,
                           const at::Tensor& b) {
  if (a.is_cpu()) {
    at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options().dtype(dtype));
    MatrixProductInto(a, b, c);
    return c;
  }
  const int64_t rest = a.size(1) % kCublasInnerStep;
  const int64_t whole = a.size(1) - rest;
  if (rest == 0 || whole == 0 || !IsBFloat16(a)) {
    return DeviceProductIn(dtype, a, b);
  }
  return DeviceProductIn(dtype, a.narrow(1, 0, whole), b.narrow(0, 0, whole))
      .add_(DeviceProductIn(
          dtype, a.narrow(1, whole, rest), b.narrow(0, whole, rest)));
}

at::Tensor Linear(const at::Tensor& x,
                  const at::Tensor& weight,
                  const at::Tensor& bias) {
  if (!bias.defined()) return MatrixProduct(x, weight.t());
  if (!HasCpuKernels(x)) return at::addmm(bias, x, weight.t());
  return MatrixProduct(x, weight.t()).add_(bias);
}

void ComputeLogits(const at::Tensor& hidden,
                   const at::Tensor& head,
                   at::Tensor logits) {
  if (head.is_cpu() || head.scalar_type() == at::kFloat) {
    MatrixProductInto(hidden.to(at::kFloat), head.t(), logits);
  } else if (logits.scalar_type() == head.scalar_type()) {
    at::mm_out(logits, hidden, head.t());
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
