// Compares the kernels with tensor operations under autograd.
#include "common/model/fast/layer_math.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder_layer.h"
#include "tests/fakes/relative_error.h"

namespace dapd {
namespace {

constexpr double kEps = 1e-6;

class LayerMathTest : public testing::TestWithParam<int64_t> {
 protected:
  at::Tensor Random(at::IntArrayRef shape) {
    return at::randn(shape, generator_);
  }

  at::Generator generator_ = at::detail::createCPUGenerator(2);
};

TEST_P(LayerMathTest, NormAndItsGradient) {
  const at::Tensor x = Random({37, GetParam()}).requires_grad_(true);
  const at::Tensor weight = Random({GetParam()});
  const at::Tensor grad = Random({37, GetParam()});
  const at::Tensor expected = RmsNorm(x, weight, kEps);
  expected.backward(grad);
  at::NoGradGuard no_grad;
  EXPECT_LE(RelativeError(Norm(x, weight, kEps), expected), 1e-6);
  at::Tensor grad_x = at::ones_like(x);
  AddNormBackward(grad, x, weight, kEps, &grad_x);
  EXPECT_LE(RelativeError(grad_x, x.grad() + 1), 1e-6);
}

TEST_P(LayerMathTest, RotationAndItsGradient) {
  ModelConfig config;
  config.head_dim = GetParam();
  const RotaryAngles angles = MakeRotaryAngles(
      config, at::arange(19, at::TensorOptions(at::kLong)), at::kFloat);
  for (const at::Tensor& norm : {at::Tensor(), Random({GetParam()})}) {
    const at::Tensor x = Random({19, 3, GetParam()}).requires_grad_(true);
    const at::Tensor grad = Random({19, 3, GetParam()});
    const at::Tensor expected =
        ApplyRotary(norm.defined() ? RmsNorm(x, norm, kEps) : x, angles);
    expected.backward(grad);
    at::NoGradGuard no_grad;
    EXPECT_LE(RelativeError(NormAndRotate(x, norm, kEps, angles), expected),
              1e-6);
    EXPECT_LE(RelativeError(
                  NormAndRotateBackward(grad.clone(), x, norm, kEps, angles),
                  x.grad()),
              1e-6);
  }
}

TEST_P(LayerMathTest, GatedProductAndItsGradient) {
  at::Tensor gate = (Random({5, GetParam()}) * 20).requires_grad_(true);
  at::Tensor up = Random({5, GetParam()}).requires_grad_(true);
  const at::Tensor grad = Random({5, GetParam()});
  const at::Tensor expected = at::silu(gate) * up;
  expected.backward(grad);
  at::NoGradGuard no_grad;
  EXPECT_LE(RelativeError(GatedProduct(gate, up), expected), 1e-6);
  at::Tensor grad_gate = gate.detach().clone();
  at::Tensor grad_up = up.detach().clone();
  GatedProductBackward(grad, &grad_gate, &grad_up);
  EXPECT_LE(RelativeError(grad_gate, gate.grad()), 1e-6);
  EXPECT_LE(RelativeError(grad_up, up.grad()), 1e-6);
}

// bfloat16 numbers are computed in float32 and rounded once. The error is at
// most 2^-8 of the result, plus float32's own error, here of the largest
// number.
void ExpectRounded(const at::Tensor& found, const at::Tensor& exact) {
  ASSERT_EQ(found.scalar_type(), at::kBFloat16);
  const at::Tensor error = (found.to(at::kFloat) - exact).abs();
  const at::Tensor bound =
      exact.abs() / 256 + 1e-5 * exact.abs().max().item<double>();
  EXPECT_TRUE((error <= bound).all().item<bool>())
      << (error / bound).max().item<double>() << " of the bound";
}

TEST_P(LayerMathTest, Bfloat16IsRoundedOnce) {
  const at::NoGradGuard no_grad;
  const auto half = [&](at::IntArrayRef shape) {
    return Random(shape).to(at::kBFloat16);
  };
  const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
  const int64_t size = GetParam();
  const at::Tensor x = half({37, size});
  const at::Tensor weight = half({size});
  const at::Tensor grad = half({37, size});
  ExpectRounded(Norm(x, weight, kEps), Norm(wide(x), wide(weight), kEps));
  at::Tensor grad_x = at::ones_like(x);
  at::Tensor grad_wide = at::ones_like(wide(x));
  AddNormBackward(grad, x, weight, kEps, &grad_x);
  AddNormBackward(wide(grad), wide(x), wide(weight), kEps, &grad_wide);
  ExpectRounded(grad_x, grad_wide);

  ExpectRounded(GatedProduct(x, grad), GatedProduct(wide(x), wide(grad)));
  at::Tensor gate = x.clone();
  at::Tensor up = half({37, size});
  at::Tensor gate_wide = wide(gate);
  at::Tensor up_wide = wide(up);
  GatedProductBackward(grad, &gate, &up);
  GatedProductBackward(wide(grad), &gate_wide, &up_wide);
  ExpectRounded(gate, gate_wide);
  ExpectRounded(up, up_wide);

  ModelConfig config;
  config.head_dim = size;
  const at::Tensor heads = half({37, 1, size});
  const at::Tensor positions = at::arange(37, at::TensorOptions(at::kLong));
  const RotaryAngles angles =
      MakeRotaryAngles(config, positions, at::kBFloat16);
  const RotaryAngles angles_wide = {wide(angles.cos), wide(angles.sin)};
  ExpectRounded(NormAndRotate(heads, at::Tensor(), kEps, angles),
                NormAndRotate(wide(heads), at::Tensor(), kEps, angles_wide));
}

// The sizes are whole vectors, vectors with an end, and less than a vector.
INSTANTIATE_TEST_SUITE_P(Sizes,
                         LayerMathTest,
                         testing::Values<int64_t>(6, 32, 128, 130, 1022));

}  // namespace
}  // namespace dapd
