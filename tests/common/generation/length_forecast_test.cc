#include "common/generation/length_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

LengthForecast ForecastOf(const std::vector<int64_t>& ended) {
  LengthForecast forecast;
  for (const int64_t tokens : ended) forecast.Add(tokens);
  return forecast;
}

// Returns the part of the lengths that are above `tokens`.
double PartAbove(const std::vector<int64_t>& lengths, int64_t tokens) {
  return static_cast<double>(std::ranges::count_if(
             lengths, [&](int64_t length) { return length > tokens; })) /
         static_cast<double>(lengths.size());
}

TEST(LengthForecastTest, NothingIsKnownUntilAnAnswerHasEnded) {
  LengthForecast forecast;
  EXPECT_FALSE(forecast.is_known());
  forecast.Add(3);
  EXPECT_TRUE(forecast.is_known());
}

TEST(LengthForecastTest, WithoutOpenAnswersItIsThePartOfTheLongerOnes) {
  const std::vector<int64_t> lengths = {700, 30, 200, 200, 90, 1500};
  const auto curve = ForecastOf(lengths).Estimate({});
  for (const int64_t tokens : {0, 29, 30, 100, 199, 200, 800, 1499}) {
    EXPECT_NEAR(curve.ShareAbove(tokens), PartAbove(lengths, tokens), 1e-12)
        << tokens;
  }
  EXPECT_GT(curve.ShareAbove(2000), 0);
  EXPECT_LT(curve.ShareAbove(2000), 1e-5);
}

// Kaplan and Meier by hand: of 4 answers one ended at 10; of the 2 that are
// known to have reached 20 one ended. An answer ends after 33.5 tokens then,
// which is 67 by two.
TEST(LengthForecastTest, AnOpenAnswerCountsAsLongerThanItIs) {
  const std::vector<int64_t> open = {12, 25};
  const auto curve = ForecastOf({10, 20}).Estimate(open);
  EXPECT_NEAR(curve.ShareAbove(9), 1, 1e-12);
  EXPECT_NEAR(curve.ShareAbove(10), 0.75, 1e-12);
  EXPECT_NEAR(curve.ShareAbove(19), 0.75, 1e-12);
  EXPECT_NEAR(curve.ShareAbove(20), 0.375, 1e-12);
  EXPECT_NEAR(curve.ShareAbove(50), 0.375 * std::exp(-30 / 33.5), 1e-12);
}

TEST(LengthForecastTest, TheOrderDoesNotMatter) {
  std::vector<int64_t> ended = {5, 90, 33, 33, 400};
  std::vector<int64_t> open = {7, 60, 200};
  const double first = ForecastOf(ended).Estimate(open).ShareAbove(40);
  std::ranges::reverse(ended);
  std::ranges::reverse(open);
  EXPECT_EQ(ForecastOf(ended).Estimate(open).ShareAbove(40), first);
}

TEST(LengthForecastTest, OnlyTheLastAnswersCount) {
  LengthForecast forecast;
  for (size_t i = 0; i < 3; ++i) forecast.Add(1'000'000);
  for (size_t i = 0; i < LengthForecast::kMostAnswers; ++i) forecast.Add(50);
  EXPECT_LT(forecast.Estimate({}).ShareAbove(50), 1e-5);
}

// At a time when a third of them have not ended, the ended answers alone say
// that hardly any answer becomes longer than 1,700 tokens.
TEST(LengthForecastTest, ItIsCloserThanTheEndedAnswersAlone) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> draw(std::log(1450.0), 0.55);
  std::vector<int64_t> all;
  std::vector<int64_t> ended;
  std::vector<int64_t> open;
  for (int i = 0; i < 600; ++i) {
    all.push_back(static_cast<int64_t>(draw(random)));
    if (all.back() <= 1800) {
      ended.push_back(all.back());
    } else {
      open.push_back(1800);
    }
  }
  const double truth = PartAbove(all, 1700);
  const double ours = ForecastOf(ended).Estimate(open).ShareAbove(1700);
  const double alone = PartAbove(ended, 1700);
  std::printf("above 1700 tokens: %.3f, expected %.3f, of the ended %.3f\n",
              truth,
              ours,
              alone);
  EXPECT_NEAR(ours, truth, 1e-9);
  EXPECT_LT(alone, truth / 2);
}

}  // namespace
}  // namespace dapd
