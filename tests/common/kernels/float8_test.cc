#include "common/kernels/float8.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/float8_numbers.h"

namespace dapd {
namespace {

TEST(Float8Test, EveryFloat8IsItself) {
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7F) == 0x7F) continue;  // not a number
    const Float8 number = {static_cast<uint8_t>(bits)};
    EXPECT_EQ(ToFloat(number), Float8Value(number.bits)) << bits;
    EXPECT_EQ(ToFloat8(ToFloat(number)).bits, number.bits) << bits;
    EXPECT_EQ(ToFloat(FromFloat<BFloat16>(ToFloat(number))), ToFloat(number));
  }
}

TEST(Float8Test, ANumberBecomesTheNearestFloat8) {
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> exponent(-12.0F, 8.8F);
  std::vector<float> values = {0.0F, -0.0F, 448.0F, 0x1.0p-10F, 0x3.0p-10F};
  for (int i = 0; i < 20000; ++i) {
    const float value = std::exp2(exponent(generator));
    values.push_back(i % 2 == 0 ? value : -value);
  }
  for (uint8_t bits = 0; bits < 0x7E; ++bits) {  // ties
    values.push_back(static_cast<float>(
        (Float8Value(bits) + Float8Value(static_cast<uint8_t>(bits + 1))) / 2));
  }
  for (const float value : values) {
    EXPECT_EQ(ToFloat8(value).bits, NearestFloat8(value)) << value;
  }
}

TEST(Float8Test, TheScaleIsTheLeastThatHoldsTheLargest) {
  for (const float largest : {448.0F,
                              449.0F,
                              1.0F,
                              1.75F,
                              std::nextafter(1.75F, 2.0F),
                              3e38F,
                              0x1.0p-118F,
                              0x1.cp-118F,
                              0x1.dp-118F,
                              1e-45F,
                              0.0F}) {
    double expected = std::ldexp(1.0, -126);
    while (largest / expected > 448.0) expected *= 2.0;
    EXPECT_EQ(Float8Scale(largest), expected) << largest;
  }
}

TEST(Float8Test, PagesOfFloat8TakeLittleMoreThanHalf) {
  EXPECT_EQ(Float8PartBytes(128), 128 * 128 + 128 * 2);
  EXPECT_TRUE(FitsFloat8(80));
  EXPECT_FALSE(FitsFloat8(120));
}

}  // namespace
}  // namespace dapd
