// Compares the element-wise mathematics of the CUDA decode kernels, on the
// host, with float64, and their rounding with LibTorch's rounding.

#include "common/kernels/decode_layer_math.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/worse.h"

namespace dapd {
namespace {

TEST(BFloat16Test, EveryValueComesBackAndTiesGoToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(RoundedTo<BFloat16>(wide)));
      continue;
    }
    ASSERT_EQ(FromFloat<BFloat16>(wide).bits, value.bits);
    if (std::isinf(wide)) continue;
    // `half` is half way to the next value.
    const float half = FloatFromBits((bits << 16) | 0x8000U);
    const auto even = static_cast<uint16_t>(bits + (bits & 1U));
    ASSERT_EQ(FromFloat<BFloat16>(half).bits, even);
    ASSERT_EQ(FromFloat<BFloat16>(FloatFromBits((bits << 16) | 0x8001U)).bits,
              static_cast<uint16_t>(bits + 1));
  }
}

TEST(DecoderMathTest, NormAgreesWithFloat64) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(2560);
  for (float& value : x) value = normal(generator);
  // The kernel adds like this: 256 threads take eight numbers at a time.
  std::vector<float> threads(256, 0.0F);
  double exact = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    float& thread = threads[i / 8 % threads.size()];
    thread = fmaf(x[i], x[i], thread);
    exact += static_cast<double>(x[i]) * x[i];
  }
  const float sum = std::accumulate(threads.begin(), threads.end(), 0.0F);
  const float scale = NormScale(sum, 2560, 1e-6F);
  const double exact_scale = 1.0 / std::sqrt(exact / 2560 + 1e-6);
  double largest = 0.0;
  for (const float value : x) {
    largest = Worse(
        largest,
        std::abs(Normalized(value, scale, 0.7F) - 0.7 * value * exact_scale));
  }
  std::cout << "largest error " << largest << "\n";
  EXPECT_LT(largest, 2e-6);
}

TEST(DecoderMathTest, ARotationKeepsLengthsAndTurnsByTheAngle) {
  const RotatedPair turned =
      Rotate<float>(3.0F, 4.0F, std::cos(0.5F), std::sin(0.5F));
  EXPECT_NEAR(turned.first, 3.0 * std::cos(0.5) - 4.0 * std::sin(0.5), 1e-6);
  EXPECT_NEAR(turned.second, 4.0 * std::cos(0.5) + 3.0 * std::sin(0.5), 1e-6);
  const RotatedPair coarse = Rotate<BFloat16>(
      3.0F, 4.0F, FromFloat<BFloat16>(0.875F), FromFloat<BFloat16>(0.5F));
  EXPECT_EQ(coarse.first, 0.625F);  // 2.625 - 2
  EXPECT_EQ(coarse.second, 5.0F);   // 3.5 + 1.5
}

TEST(DecoderMathTest, SwiGluAgreesWithFloat64AndSaturates) {
  double largest = 0.0;
  for (float gate = -30.0F; gate < 30.0F; gate += 0.37F) {
    const double exact = gate / (1.0 + std::exp(-static_cast<double>(gate)));
    largest = Worse(largest,
                    std::abs(Gated<float>(gate, 1.5F) - exact * 1.5) /
                        std::max(1.0, std::abs(exact)));
  }
  std::cout << "largest error " << largest << "\n";
  EXPECT_LT(largest, 1e-6);
  EXPECT_EQ(Gated<float>(-200.0F, 1.0F), 0.0F);
  EXPECT_EQ(Gated<float>(200.0F, 1.0F), 200.0F);
}

TEST(DecoderMathTest, ABiasIsAddedBeforeTheResidualIsRounded) {
  const BFloat16 x = FromFloat<BFloat16>(256.0F);
  const BFloat16 delta = FromFloat<BFloat16>(1.0F);
  // 1 + 0.5 is kept; 257.5 rounds to 258, as 256 + 1.5 does in LibTorch.
  EXPECT_EQ(ToFloat(AddResidual(x, delta, 0.5F)), 258.0F);
  EXPECT_EQ(ToFloat(AddResidual(x, delta, 0.0F)), 256.0F);
}

}  // namespace
}  // namespace dapd
