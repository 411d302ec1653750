// The host twin of the CUDA decode attention: the same functions in the same
// order of splits, lanes and groups, against attention in float64.

#include "common/kernels/decode_attention_math.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr int kWarp = 32;

// One query head over `tokens` keys and values [tokens, head_dim].
struct Inputs {
  int head_dim = 0;
  int tokens = 0;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
};

Inputs RandomInputs(int head_dim, int tokens, uint32_t seed) {
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

// Sums as a butterfly over `values`, whose number is a power of two.
float Butterfly(std::vector<float> values) {
  for (size_t step = values.size() / 2; step > 0; step /= 2) {
    const std::vector<float> before = values;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = before[i] + before[i ^ step];
    }
  }
  return values[0];
}

float Score(const Inputs& in, int token) {
  std::vector<float> lanes(kLanesPerKey, 0.0F);
  for (int lane = 0; lane < kLanesPerKey; ++lane) {
    for (int d = lane * kChunk; d < in.head_dim; d += kLanesPerKey * kChunk) {
      lanes[lane] =
          AddChunkDot(lanes[lane], &in.q[d], &in.k[token * in.head_dim + d]);
    }
  }
  return Butterfly(lanes) * (1.0F / sqrtf(static_cast<float>(in.head_dim)));
}

std::vector<float> Twin(const Inputs& in) {
  const int64_t splits = NumSplits(in.tokens);
  std::vector<SoftmaxPart> parts;
  std::vector<float> outputs;  // [splits, head_dim]
  for (int64_t split = 0; split < splits; ++split) {
    const int begin = static_cast<int>(split) * kSplitTokens;
    const int tokens = std::min(in.tokens - begin, kSplitTokens);
    std::vector<float> scores(kSplitTokens, -INFINITY);
    for (int t = 0; t < tokens; ++t) scores[t] = Score(in, begin + t);
    SoftmaxPart part{*std::max_element(scores.begin(), scores.end()), 0.0F};
    std::vector<float> lanes(kWarp, 0.0F);
    for (int t = 0; t < kSplitTokens; ++t) {
      scores[t] = expf(scores[t] - part.max);
      lanes[t % kWarp] += scores[t];
    }
    part.sum = Butterfly(lanes);
    parts.push_back(part);
    for (int d = 0; d < in.head_dim; ++d) {
      float output = 0.0F;
      for (int group = 0; group < NumValueGroups(in.head_dim); ++group) {
        float sum = 0.0F;
        for (int t = group; t < tokens; t += NumValueGroups(in.head_dim)) {
          sum = fmaf(scores[t], in.v[(begin + t) * in.head_dim + d], sum);
        }
        output += sum;
      }
      outputs.push_back(output);
    }
  }
  std::vector<float> combined;
  for (int d = 0; d < in.head_dim; ++d) {
    combined.push_back(
        CombineSplits(parts.data(), &outputs[d], in.head_dim, splits));
  }
  return combined;
}

std::vector<double> Reference(const Inputs& in) {
  std::vector<double> weights;
  double sum = 0.0;
  for (int t = 0; t < in.tokens; ++t) {
    double score = 0.0;
    for (int d = 0; d < in.head_dim; ++d) {
      score += static_cast<double>(in.q[d]) * in.k[t * in.head_dim + d];
    }
    weights.push_back(std::exp(score / std::sqrt(in.head_dim)));
    sum += weights.back();
  }
  std::vector<double> output(static_cast<size_t>(in.head_dim), 0.0);
  for (int t = 0; t < in.tokens; ++t) {
    for (int d = 0; d < in.head_dim; ++d) {
      output[d] += weights[t] / sum * in.v[t * in.head_dim + d];
    }
  }
  return output;
}

TEST(AttentionMathTest, SplitsInTheKernelsOrderAgreeWithFloat64) {
  double largest = 0.0;
  for (const int head_dim : {8, 64, 80, 128, 256}) {
    for (const int tokens : {1, 127, 128, 129, 1000}) {
      const Inputs in = RandomInputs(
          head_dim, tokens, static_cast<uint32_t>(head_dim * 1000 + tokens));
      const std::vector<float> twin = Twin(in);
      const std::vector<double> reference = Reference(in);
      for (int d = 0; d < head_dim; ++d) {
        largest = std::max(largest, std::abs(twin[d] - reference[d]));
      }
    }
  }
  std::cout << "largest error " << largest << "\n";
  EXPECT_LT(largest, 1e-5);
}

TEST(AttentionMathTest, ASplitFarBelowTheOthersCountsForNothing) {
  const SoftmaxPart parts[] = {{1000.0F, 2.0F}, {-1000.0F, 5.0F}};
  const float outputs[] = {3.0F, 100.0F};
  EXPECT_EQ(CombineSplits(parts, outputs, 1, 2), 1.5F);
  EXPECT_EQ(CombineSplits(parts, outputs, 1, 1), 1.5F);
}

TEST(AttentionMathTest, GeometriesThatTheKernelsDoNotTakeAreRefused) {
  EXPECT_TRUE(FitsDecodeAttention(32, 8, 128));
  EXPECT_TRUE(FitsDecodeAttention(14, 2, 64));
  EXPECT_TRUE(FitsDecodeAttention(64, 8, 256));
  EXPECT_FALSE(FitsDecodeAttention(32, 2, 128));  // 16 heads share one
  EXPECT_FALSE(FitsDecodeAttention(9, 2, 64));
  EXPECT_FALSE(FitsDecodeAttention(4, 2, 12));
  EXPECT_FALSE(FitsDecodeAttention(4, 2, 264));
}

}  // namespace
}  // namespace dapd
