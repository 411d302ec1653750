// Compares the host twin of the CUDA decode attention (the same functions in
// the same order of splits, pages, lanes and groups) with attention in float64.

#include "common/kernels/decode_attention_math.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/attention_twin.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

AttentionInputs RandomInputs(int head_dim, int tokens, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  const auto numbers = [&](int size) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) {
      value = RoundedTo<BFloat16>(normal(generator));
    }
    return values;
  };
  return {head_dim,
          tokens,
          numbers(head_dim),
          numbers(tokens * head_dim),
          numbers(tokens * head_dim)};
}

TEST(AttentionMathTest, PagesInTheKernelsOrderAgreeWithFloat64) {
  double largest = 0.0;
  for (const int head_dim : {8, 64, 80, 128, 256}) {
    for (const int tokens : {1, 127, 128, 129, 1000, 2500}) {
      const AttentionInputs in = RandomInputs(
          head_dim, tokens, static_cast<uint32_t>(head_dim * 1000 + tokens));
      const std::vector<float> twin = AttentionTwin(in);
      const std::vector<double> reference = AttentionInDouble(in);
      for (int d = 0; d < head_dim; ++d) {
        largest = Worse(largest, std::abs(twin[d] - reference[d]));
      }
    }
  }
  std::cout << "largest error " << largest << "\n";
  EXPECT_LT(largest, 1e-5);
}

TEST(AttentionMathTest, APageFarBelowTheOthersCountsForNothing) {
  const SoftmaxPart parts[] = {
      {-1000.0F, 5.0F}, {1000.0F, 2.0F}, {-1000.0F, 5.0F}};
  const float outputs[] = {100.0F, 3.0F, 100.0F};
  EXPECT_EQ(CombinePages(parts, outputs, 1, 3), 1.5F);
  EXPECT_EQ(CombinePages(parts + 1, outputs + 1, 1, 2), 1.5F);
  EXPECT_EQ(CombinePages(parts + 1, outputs + 1, 1, 1), 1.5F);
}

TEST(AttentionMathTest, GeometriesThatTheKernelsDoNotTakeAreRefused) {
  EXPECT_TRUE(FitsDecodeAttention(32, 8, 128));
  EXPECT_TRUE(FitsDecodeAttention(14, 2, 64));
  EXPECT_TRUE(FitsDecodeAttention(64, 8, 256));
  EXPECT_FALSE(FitsDecodeAttention(32, 2, 128));  // 16 heads share a KV head
  EXPECT_FALSE(FitsDecodeAttention(9, 2, 64));
  EXPECT_FALSE(FitsDecodeAttention(4, 2, 12));
  EXPECT_FALSE(FitsDecodeAttention(4, 2, 264));
}

}  // namespace
}  // namespace dapd
