#include "common/tensor/float8_tensor.h"

namespace dapd {
namespace {

// Returns Float8Scale of the largest magnitude of each row, [..., 1] float32.
at::Tensor ScalesOf(const at::Tensor& x) {
  const at::Tensor largest = x.abs().amax(-1, /*keepdim=*/true);
  const at::Tensor exponents =
      largest.view(at::kInt).add(0x1FFFFF).bitwise_right_shift(23).sub_(8);
  // The difference is 0, or not a number.
  return exponents.clamp_min_(1).bitwise_left_shift_(23).view(at::kFloat) +
         (largest - largest);
}

}  // namespace

Float8Tensor RoundToFloat8(const at::Tensor& x) {
  const at::Tensor numbers = x.to(at::kFloat).contiguous();
  const at::Tensor scales = ScalesOf(numbers);
  return {(numbers / scales).to(at::kFloat8_e4m3fn), scales.to(at::kBFloat16)};
}

at::Tensor ThroughFloat8(const at::Tensor& x) {
  const Float8Tensor rounded = RoundToFloat8(x);
  return (rounded.numbers.to(at::kFloat) * rounded.scales.to(at::kFloat))
      .to(x.scalar_type());
}

}  // namespace dapd
