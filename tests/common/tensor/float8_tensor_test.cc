#include "common/tensor/float8_tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "common/kernels/float8.h"

namespace dapd {
namespace {

TEST(Float8TensorTest, RowsAreRoundedAsTheKernelsRoundThem) {
  at::manual_seed(1);
  // Rows of very different sizes, and a row of zeros.
  at::Tensor x = at::randn({3, 40, 16}) *
                 at::exp2(at::linspace(-140, 120, 40)).view({1, 40, 1});
  x[0][0].zero_();
  x = x.to(at::kBFloat16);
  const Float8Tensor rounded = RoundToFloat8(x);
  const at::Tensor numbers = rounded.numbers.view(at::kByte).contiguous();
  const at::Tensor scales = rounded.scales.to(at::kFloat).contiguous();
  const at::Tensor floats = x.to(at::kFloat).contiguous();
  for (int64_t row = 0; row < 120; ++row) {
    const float* values = floats.const_data_ptr<float>() + 16 * row;
    float largest = 0.0F;
    for (int i = 0; i < 16; ++i) {
      largest = std::max(largest, std::abs(values[i]));
    }
    const float scale = Float8Scale(largest);
    ASSERT_EQ(scales.const_data_ptr<float>()[row], scale) << "row " << row;
    for (int i = 0; i < 16; ++i) {
      ASSERT_EQ(numbers.const_data_ptr<uint8_t>()[16 * row + i],
                ToFloat8(values[i] / scale).bits)
          << "row " << row << ", number " << values[i];
    }
  }
}

TEST(Float8TensorTest, ANumberKeepsFourSignificantBits) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({64, 128}, at::kDouble).to(at::kBFloat16);
  const at::Tensor error =
      ((ThroughFloat8(x).to(at::kFloat) - x.to(at::kFloat)) / x.to(at::kFloat))
          .abs();
  // Numbers far below the row's largest have fewer bits.
  const at::Tensor is_large =
      x.to(at::kFloat).abs() >
      x.to(at::kFloat).abs().amax(-1, /*keepdim=*/true) * 0x1.0p-13;
  EXPECT_LE(error.masked_select(is_large).max().item<float>(), 0x1.0p-4F);
  EXPECT_TRUE(at::equal(ThroughFloat8(ThroughFloat8(x)), ThroughFloat8(x)));
}

TEST(Float8TensorTest, ARowThatIsNotFiniteStaysSo) {
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor x = at::ones({2, 16}, at::kBFloat16);
    x[1][3] = bad;
    const at::Tensor through = ThroughFloat8(x);
    EXPECT_TRUE(through[0].isfinite().all().item<bool>());
    EXPECT_FALSE(through[1].isfinite().any().item<bool>());
  }
}

}  // namespace
}  // namespace dapd
