// Compares the two ways in which the host twin of the CUDA sampler chooses a
// token with SampleToken, which sorts the vocabulary.

#include "common/kernels/sampling_math.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/sampling.h"

namespace dapd {
namespace {

std::vector<float> RandomLogits(int size, float spread, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<size_t>(size));
  for (float& logit : logits) logit = spread * normal(generator);
  return logits;
}

std::vector<uint64_t> RankedKeys(const std::vector<float>& logits,
                                 int64_t num_tokens) {
  std::vector<uint64_t> keys;
  for (int64_t i = 0; i < num_tokens; ++i) {
    keys.push_back(RankKey(logits[i], static_cast<uint32_t>(i)));
  }
  std::sort(keys.begin(), keys.end(), std::greater<>());
  return keys;
}

int32_t TwinSorted(const std::vector<float>& logits,
                   int64_t num_tokens,
                   const SamplingParams& params,
                   double uniform) {
  std::vector<uint64_t> keys = RankedKeys(logits, num_tokens);
  if (params.temperature == 0.0) return IdOfKey(keys[0]);
  keys.resize(std::min<size_t>(keys.size(), params.top_k));
  std::vector<double> weights;
  for (const uint64_t key : keys) {
    weights.push_back(
        SortedWeight(LogitOfKey(key), LogitOfKey(keys[0]), params.temperature));
  }
  return IdOfKey(keys[PickSorted(weights.data(),
                                 static_cast<int>(weights.size()),
                                 params.top_p,
                                 uniform)]);
}

// Chooses in the general way with one thread: it adds matching keys to bins,
// digit by digit.
class TwinByMass {
 public:
  TwinByMass(const std::vector<float>& logits,
             int64_t num_tokens,
             float temperature)
      : logits_(logits), num_tokens_(num_tokens), temperature_(temperature) {
    best_ = *std::max_element(logits.begin(), logits.begin() + num_tokens);
  }

  int32_t Choose(const SamplingParams& params, double uniform) {
    uint64_t floor = 0;
    if (params.top_k > 0 && params.top_k < num_tokens_) {
      floor = Run(static_cast<uint64_t>(params.top_k), false, 0).Floor();
    }
    uint64_t total = 0;
    for (int64_t i = 0; i < num_tokens_; ++i) {
      if (Key(i) >= floor) total += Mass(i);
    }
    if (params.top_p < 1.0) {
      const RadixDescent cut =
          Run(MassToReach(params.top_p, total), true, floor);
      floor = std::max(floor, cut.Floor());
      total = cut.weight;
    }
    const RadixDescent draw = Run(MassToPass(uniform, total), true, floor);
    for (int64_t i = 0; i < num_tokens_; ++i) {
      if (Key(i) >= floor && draw.Matches(Key(i))) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

 private:
  uint64_t Key(int64_t i) const {
    return RankKey(logits_[i], static_cast<uint32_t>(i));
  }
  uint64_t Mass(int64_t i) const {
    return FixedMass(logits_[i], best_, temperature_);
  }
  RadixDescent Run(uint64_t need, bool by_mass, uint64_t floor) const {
    RadixDescent descent;
    descent.need = need;
    while (!descent.done) {
      std::vector<DigitBin> bins(kNumDigits, DigitBin{0, 0});
      for (int64_t i = 0; i < num_tokens_; ++i) {
        if (Key(i) < floor || !descent.Matches(Key(i))) continue;
        DigitBin& bin = bins[descent.Digit(Key(i))];
        bin.weight += by_mass ? Mass(i) : 1;
        ++bin.count;
      }
      descent.Descend(bins.data());
    }
    return descent;
  }

  const std::vector<float>& logits_;
  int64_t num_tokens_;
  float temperature_;
  float best_ = 0.0F;
};

TEST(SamplingMathTest, KeysRankAsLogitsDoAndEqualOnesById) {
  const float ranked[] = {std::numeric_limits<float>::max(),
                          1.0F,
                          1e-40F,
                          0.0F,
                          -1e-40F,
                          -1.0F,
                          std::numeric_limits<float>::lowest()};
  for (size_t i = 0; i + 1 < std::size(ranked); ++i) {
    EXPECT_GT(RankKey(ranked[i], 9), RankKey(ranked[i + 1], 3));
    EXPECT_EQ(LogitOfKey(RankKey(ranked[i], 3)), ranked[i]);
  }
  EXPECT_GT(RankKey(2.0F, 3), RankKey(2.0F, 4));
  EXPECT_GT(RankKey(-0.0F, 3), RankKey(0.0F, 4));
  EXPECT_EQ(IdOfKey(RankKey(-5.0F, 151'935)), 151'935);
}

TEST(SamplingMathTest, TheUniformNumberIsTheKeyedOne) {
  const SamplingKey key{0x123456789ABCDEFULL, 7, 11, 13};
  for (uint32_t token = 0; token < 1000; ++token) {
    ASSERT_EQ(PhiloxUniform(Philox({{token, key.sample, key.example, key.step}},
                                   key.seed)),
              KeyedUniform(key, token));
  }
}

TEST(SamplingMathTest, BothWaysGiveTheTokenOfTheSortedVocabulary) {
  struct Case {
    double temperature;
    int64_t top_k;
    double top_p;
  };
  const Case cases[] = {{0.0, 0, 1.0},
                        {1.1, 20, 0.95},
                        {0.7, 64, 1.0},
                        {1.0, 1, 0.5},
                        {1.0, 0, 1.0},
                        {1.1, 0, 0.95},
                        {0.6, 200, 0.9},
                        {1e-50, 0, 0.95},
                        {2.0, 5000, 1.0}};
  int draws = 0;
  for (const float spread : {0.0F, 0.5F, 3.0F, 8.0F}) {
    const std::vector<float> logits =
        RandomLogits(3000, spread, static_cast<uint32_t>(spread * 10));
    for (const Case& c : cases) {
      const SamplingParams params{c.temperature, c.top_k, c.top_p, 1};
      const bool sorted =
          c.temperature == 0.0 || (c.top_k > 0 && c.top_k <= kMaxSortedTopK);
      TwinByMass by_mass(logits, 2900, MassTemperature(c.temperature));
      for (uint32_t i = 0; i < 40; ++i) {
        const double uniform = KeyedUniform({1, 2, 3, 4}, i);
        const int32_t twin = sorted ? TwinSorted(logits, 2900, params, uniform)
                                    : by_mass.Choose(params, uniform);
        ASSERT_EQ(twin, SampleToken(logits, 2900, params, uniform))
            << "spread " << spread << ", temperature " << c.temperature
            << ", top_k " << c.top_k << ", top_p " << c.top_p << ", draw " << i;
        ++draws;
      }
    }
  }
  std::cout << draws << " draws, all equal\n";
}

TEST(SamplingMathTest, TheEndsOfTheUniformGiveTheFirstAndTheLast) {
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, -60.0F};
  TwinByMass by_mass(logits, 4, 1.0F);
  const double last = 1.0 - 0x1.0p-53;
  EXPECT_EQ(by_mass.Choose({1.0, 0, 1.0, 1}, 0.0), 1);
  // e^-62 of the largest mass is too little to be counted.
  EXPECT_EQ(by_mass.Choose({1.0, 0, 1.0, 1}, last), 0);
  EXPECT_EQ(by_mass.Choose({1.0, 0, 1e-9, 1}, last), 1);
}

TEST(SamplingMathTest, PaddingFarAboveAllTokensWeighsNothing) {
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, 500.0F};
  const SamplingParams params{1.0, 0, 0.9, 1};
  TwinByMass by_mass(logits, 3, 1.0F);
  for (uint32_t i = 0; i < 40; ++i) {
    const double uniform = KeyedUniform({1, 2, 3, 4}, i);
    ASSERT_EQ(by_mass.Choose(params, uniform),
              SampleToken(logits, 3, params, uniform));
  }
}

}  // namespace
}  // namespace dapd
