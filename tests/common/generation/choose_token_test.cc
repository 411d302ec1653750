#include "common/generation/choose_token.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/worse.h"

namespace dapd {
namespace {

struct Case {
  const char* name;
  SamplingParams params;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"greedy", {.temperature = 0.0}},
    {"top_k_20_top_p_95", {.temperature = 1.1, .top_k = 20, .top_p = 0.95}},
    {"top_k_1", {.temperature = 0.7, .top_k = 1}},
    {"top_k_beyond_the_chunks", {.temperature = 1.0, .top_k = 500}},
    {"top_k_beyond_the_vocabulary", {.temperature = 1.0, .top_k = 100000}},
    {"everything", {.temperature = 1.0}},
    {"hot", {.temperature = 50.0}},
    {"cold", {.temperature = 1e-3}},
    {"top_p_alone", {.temperature = 1.0, .top_p = 0.9}},
    {"top_p_tiny", {.temperature = 1.0, .top_p = 1e-9}},
};

const DecodeKernels& Kernels() { return DecodeKernelsOf(CpuLevelInUse()); }

class ChooseTokenTest : public testing::TestWithParam<Case> {};

TEST_P(ChooseTokenTest, GivesTheTokenAndTheLogprobOfTheSlowTwin) {
  std::mt19937 engine(1);
  double worst = 0.0;
  for (const size_t size : {1, 63, 64, 65, 1000, 5000}) {
    for (const float spread : {0.5F, 4.0F}) {
      std::normal_distribution<float> normal(0.0F, spread);
      std::vector<float> logits(size);
      for (float& z : logits) z = normal(engine);
      const auto num_tokens = std::max<int64_t>(
          1, static_cast<int64_t>(size) - static_cast<int64_t>(size) / 10);
      for (uint32_t i = 0; i < 60; ++i) {
        const double uniform = KeyedUniform({.seed = 9, .example = i}, 0);
        const std::optional<ChosenToken> chosen = ChooseToken(
            Kernels(), logits, num_tokens, GetParam().params, uniform);
        ASSERT_TRUE(chosen.has_value());
        ASSERT_EQ(chosen->token,
                  SampleToken(logits, num_tokens, GetParam().params, uniform))
            << size << " " << spread << " " << uniform;
        worst = Worse(worst,
                      std::abs(static_cast<double>(chosen->logprob) -
                               static_cast<double>(
                                   LogProbability(logits, chosen->token))));
      }
    }
  }
  RecordProperty("worst_logprob_error", std::to_string(worst));
  EXPECT_LT(worst, 3e-6);
}

TEST_P(ChooseTokenTest, EqualLogitsRankById) {
  // A head in bfloat16 gives few different values, too.
  std::mt19937 engine(2);
  std::vector<float> logits(700);
  for (float& z : logits) z = static_cast<float>(engine() % 7);
  for (uint32_t i = 0; i < 200; ++i) {
    const double uniform = KeyedUniform({.seed = 4, .example = i}, 0);
    EXPECT_EQ(
        ChooseToken(Kernels(), logits, 700, GetParam().params, uniform)->token,
        SampleToken(logits, 700, GetParam().params, uniform));
  }
}

INSTANTIATE_TEST_SUITE_P(Parameters,
                         ChooseTokenTest,
                         testing::ValuesIn(kCases),
                         testing::PrintToStringParamName());

TEST(ChooseTokenTest, GreedyFindsTheLargestWhereverItIs) {
  constexpr int64_t kTokens = 3 * kMaximaChunk + 5;
  std::vector<float> logits(kTokens, 0.0F);
  for (int32_t i = 0; i < kTokens; ++i) {
    logits[static_cast<size_t>(i)] = 1.0F;
    EXPECT_EQ(ChooseToken(Kernels(), logits, kTokens, {.temperature = 0.0}, 0.5)
                  ->token,
              i);
    logits[static_cast<size_t>(i)] = 0.0F;
  }
}

// The exponential of such a logit would not be finite.
TEST(ChooseTokenTest, ALargeLogitOfPaddingCounts) {
  std::vector<float> logits(100, 0.0F);
  logits[99] = 200.0F;
  const std::optional<ChosenToken> chosen =
      ChooseToken(Kernels(), logits, 50, {.temperature = 0.0}, 0.5);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_FLOAT_EQ(chosen->logprob, -200.0F);
}

TEST(ChooseTokenTest, ALogitThatIsNotFiniteGivesNothing) {
  std::vector<float> logits(100, 0.0F);
  logits[99] = NAN;
  for (const int64_t num_tokens : {50, 100}) {
    EXPECT_FALSE(
        ChooseToken(Kernels(), logits, num_tokens, {}, 0.5).has_value());
  }
}

}  // namespace
}  // namespace dapd
