#include "common/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

// Random123 has published these answers.
TEST(PhiloxTest, AgreesWithTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{
                0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                       {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{
                0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{
                0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedUniformTest, EveryPartOfTheKeyMattersAndNothingElse) {
  const SamplingKey key{1, 2, 3, 4};
  EXPECT_EQ(KeyedUniform(key, 5), KeyedUniform(key, 5));
  for (const SamplingKey& other : {SamplingKey{9, 2, 3, 4},
                                   SamplingKey{1, 9, 3, 4},
                                   SamplingKey{1, 2, 9, 4},
                                   SamplingKey{1, 2, 3, 9}}) {
    EXPECT_NE(KeyedUniform(key, 5), KeyedUniform(other, 5));
  }
  EXPECT_NE(KeyedUniform(key, 5), KeyedUniform(key, 6));
}

// Returns the probability of every token by the definition, with a full sort.
std::vector<double> SlowProbabilities(const std::vector<float>& logits,
                                      const SamplingParams& params) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[a] > logits[b];
  });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  std::vector<double> p(logits.size(), 0.0);
  double total = 0.0;
  for (const int id : order) {
    total += p[id] = std::exp(logits[id] / params.temperature);
  }
  double mass = 0.0;
  double kept = 0.0;
  for (const int id : order) {
    if (mass >= params.top_p) {
      p[id] = 0.0;
    } else {
      mass += p[id] / total;
      kept += p[id];
    }
  }
  for (double& value : p) value /= kept;
  return p;
}

TEST(SampleTokenTest, FrequenciesFollowTheFilteredDistribution) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(40);
  for (float& z : logits) z = normal(engine);
  for (const SamplingParams& params : {SamplingParams{1.1, 20, 0.95},
                                       SamplingParams{1.0, 0, 1.0},
                                       SamplingParams{0.7, 5, 1.0},
                                       SamplingParams{1.0, 0, 0.5}}) {
    const std::vector<double> expected = SlowProbabilities(logits, params);
    constexpr int kDraws = 40000;
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) {
      const double u = KeyedUniform({7, 0, static_cast<uint32_t>(i), 0}, 0);
      ++counts[SampleToken(
          logits, static_cast<int64_t>(logits.size()), params, u)];
    }
    double chi2 = 0.0;
    int bins = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      const double mean = expected[v] * kDraws;
      if (expected[v] == 0.0) {
        EXPECT_EQ(counts[v], 0) << v;
      } else if (mean > 5) {
        chi2 += (counts[v] - mean) * (counts[v] - mean) / mean;
        ++bins;
      }
    }
    // The limit is five standard deviations of chi-square.
    EXPECT_LT(chi2, bins + 5 * std::sqrt(2.0 * bins));
  }
}

TEST(SampleTokenTest, GreedyTakesTheFirstOfEquals) {
  const std::vector<float> logits = {0.0F, 3.0F, 3.0F, 1.0F};
  EXPECT_EQ(SampleToken(logits, 4, {.temperature = 0.0}, 0.9), 1);
}

// Each of four tokens has a quarter. A run that goes on must draw the same
// token.
TEST(SampleTokenTest, OnTheBorderOfTwoTokensTheLaterOneIsDrawn) {
  const std::vector<float> logits(4, 1.0F);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(SampleToken(logits, 4, {.temperature = 1.0}, i / 4.0), i);
    EXPECT_EQ(SampleToken(logits,
                          4,
                          {.temperature = 1.0},
                          std::nextafter((i + 1) / 4.0, 0.0)),
              i);
  }
}

TEST(SampleTokenTest, TopPKeepsNoMoreThanItsMassNeeds) {
  const std::vector<float> logits(4, 1.0F);
  EXPECT_EQ(SampleToken(logits, 4, {.temperature = 1.0, .top_p = 0.5}, 0.99),
            1);
  EXPECT_EQ(SampleToken(logits, 4, {.temperature = 1.0, .top_p = 0.51}, 0.99),
            2);
}

TEST(SampleTokenTest, PaddingRowsAreNeverChosen) {
  const std::vector<float> logits = {0.0F, 1.0F, 50.0F, 60.0F};
  EXPECT_EQ(SampleToken(logits, 2, {.temperature = 0.0}, 0.0), 1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(SampleToken(logits, 2, {.temperature = 1.0}, i / 1000.0), 2);
  }
}

TEST(SampleTokenTest, TopPKeepsAtLeastOneToken) {
  const std::vector<float> logits = {5.0F, 4.0F};
  EXPECT_EQ(SampleToken(logits, 2, {.temperature = 1.0, .top_p = 1e-9}, 0.999),
            0);
}

TEST(LogProbabilityTest, IsTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits = {1.0F, 2.0F, 3.0F};
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_NEAR(LogProbability(logits, 1), 2.0 - std::log(sum), 1e-6);
}

}  // namespace
}  // namespace dapd
