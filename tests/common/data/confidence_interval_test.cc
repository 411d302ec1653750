#include "common/data/confidence_interval.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

// The expected values are from scipy.stats.t.ppf(0.975, df).
TEST(StudentQuantileTest, AgreesWithScipy) {
  EXPECT_NEAR(StudentQuantile975(1), 12.706204736, 1e-4);
  EXPECT_NEAR(StudentQuantile975(4), 2.7764451052, 1e-7);
  EXPECT_NEAR(StudentQuantile975(30), 2.0422724563, 1e-7);
  EXPECT_NEAR(StudentQuantile975(199), 1.9719565442, 1e-7);
}

// Without the cache these calls would take minutes.
TEST(StudentQuantileTest, IsFoundOncePerNumberOfDegrees) {
  double sum = 0.0;
  for (int i = 0; i < 200000; ++i) sum += StudentQuantile975(1 + i % 2);
  EXPECT_NEAR(sum / 200000, (12.706204736 + 4.3026527297) / 2, 1e-4);
}

TEST(MeanIntervalTest, IsStudentsOverTheValues) {
  // The expected values are from scipy.stats.t.interval(0.95, 3, loc=2.5,
  // scale=scipy.stats.sem([1,2,3,4])).
  const Interval interval = MeanInterval({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(interval.mean, 2.5);
  EXPECT_NEAR(interval.low, 0.4457397432, 1e-6);
  EXPECT_NEAR(interval.high, 4.5542602568, 1e-6);
}

// These values are not shares, so nothing bounds the mean of values that agree.
TEST(MeanIntervalTest, ValuesThatAgreeHaveNoWidth) {
  for (const double value : {0.0, 0.25, 1.0}) {
    const Interval interval = MeanInterval(std::vector<double>(40, value));
    EXPECT_EQ(interval.mean, value);
    EXPECT_EQ(interval.low, value);
    EXPECT_EQ(interval.high, value);
  }
}

TEST(MeanIntervalTest, NoValuesAndOneValueAreHarmless) {
  EXPECT_EQ(MeanInterval({}).mean, 0.0);
  EXPECT_EQ(MeanInterval({0.4}).low, 0.4);
}

TEST(WilsonIntervalTest, NoneStillHasWidth) {
  // The expected values are from statsmodels: proportion_confint(0, 40,
  // method="wilson").
  const Interval interval = WilsonInterval(0.0, 40);
  EXPECT_EQ(interval.mean, 0.0);
  EXPECT_EQ(interval.low, 0.0);
  EXPECT_NEAR(interval.high, 0.0876216, 1e-6);
  const Interval some = WilsonInterval(0.25, 40);
  EXPECT_NEAR(some.low, 0.1418712, 1e-6);
  EXPECT_NEAR(some.high, 0.4019396, 1e-6);
}

TEST(WilsonIntervalTest, BoundsAtTheEndsAreTheEnds) {
  for (int count = 1; count <= 200; ++count) {
    EXPECT_EQ(WilsonInterval(0.0, count).low, 0.0) << count;
    EXPECT_EQ(WilsonInterval(1.0, count).high, 1.0) << count;
  }
}

TEST(BootstrapIntervalTest, IsNearlyTheNormalOneForManyValues) {
  // 200 values, half of them 0 and half 1: standard error 0.0354.
  std::vector<double> values(200, 0.0);
  std::fill(values.begin(), values.begin() + 100, 1.0);
  const Interval interval = BootstrapInterval(values, 1);
  EXPECT_DOUBLE_EQ(interval.mean, 0.5);
  EXPECT_NEAR(interval.low, 0.5 - 1.96 * 0.03536, 0.006);
  EXPECT_NEAR(interval.high, 0.5 + 1.96 * 0.03536, 0.006);
}

TEST(BootstrapIntervalTest, IsAFunctionOfValuesAndSeed) {
  // Sums of two resamples of round values may be equal by chance.
  std::vector<double> values;
  for (int i = 1; i <= 20; ++i) values.push_back(std::sqrt(i) / 5.0);
  const Interval one = BootstrapInterval(values, 7);
  const Interval again = BootstrapInterval(values, 7);
  const Interval other = BootstrapInterval(values, 8);
  EXPECT_EQ(one.low, again.low);
  EXPECT_EQ(one.high, again.high);
  EXPECT_TRUE(one.low != other.low || one.high != other.high);
  EXPECT_GE(one.low, values.front());
  EXPECT_LE(one.high, values.back());
}

TEST(BootstrapIntervalTest, AllRightStillHasWidth) {
  const std::vector<double> values(40, 1.0);
  EXPECT_EQ(BootstrapInterval(values, 1).low, WilsonInterval(1.0, 40).low);
  EXPECT_LT(BootstrapInterval(values, 1).low, 0.95);
  EXPECT_EQ(BootstrapInterval({}, 1).mean, 0.0);
}

// For example, one problem with two right answers of four.
TEST(BootstrapIntervalTest, SharesThatAgreeBetweenNoneAndAllHaveWidth) {
  for (const size_t count : {1, 3, 40}) {
    const Interval interval =
        BootstrapInterval(std::vector<double>(count, 0.5), 1);
    const Interval expected = WilsonInterval(0.5, static_cast<double>(count));
    EXPECT_EQ(interval.mean, 0.5);
    EXPECT_EQ(interval.low, expected.low) << count;
    EXPECT_EQ(interval.high, expected.high) << count;
    EXPECT_LT(interval.low, 0.4);
  }
}

TEST(BootstrapSharesTest, AsManyRightAnswersAreTheSameMean) {
  // No sum of doubles equals these fifths exactly.
  EXPECT_EQ(BootstrapShares({1, 2, 3, 0}, 5, 1).mean, 0.3);
  EXPECT_EQ(BootstrapShares({3, 2, 1, 0}, 5, 1).mean, 0.3);
  EXPECT_EQ(BootstrapShares({0, 0, 1, 5}, 5, 1).mean, 0.3);
  const Interval shares = BootstrapShares({1, 2, 3, 0}, 4, 7);
  const Interval expected = BootstrapInterval({0.25, 0.5, 0.75, 0.0}, 7);
  EXPECT_EQ(shares.low, expected.low);
  EXPECT_EQ(shares.high, expected.high);
  EXPECT_EQ(BootstrapShares({2, 2}, 4, 1).low, WilsonInterval(0.5, 2).low);
  EXPECT_EQ(BootstrapShares({}, 4, 1).mean, 0.0);
}

TEST(BootstrapMeanTest, OfNumbersThatAreNoSharesThereIsNoExceptionAtOne) {
  const Interval lengths = BootstrapMean(std::vector<double>(40, 1.0), 1);
  EXPECT_EQ(lengths.mean, 1.0);
  EXPECT_EQ(lengths.low, 1.0);
  EXPECT_EQ(lengths.high, 1.0);
  const std::vector<double> values = {0.1, 0.25, 0.9};
  EXPECT_EQ(BootstrapMean(values, 7).low, BootstrapInterval(values, 7).low);
  EXPECT_EQ(BootstrapMean({}, 1).mean, 0.0);
}

TEST(BootstrapOfTest, AsMuchIsLeftOutBelowAsAbove) {
  double next = 0.0;
  const Interval interval =
      BootstrapOf(1, 7, [&](const std::vector<double>& /*times*/) {
        return next++;  // resamples come first, then the values themselves
      });
  EXPECT_EQ(interval.mean, 10000.0);
  EXPECT_EQ(interval.low, 249.0);
  EXPECT_EQ(interval.high, 9999.0 - 249.0);
}

TEST(BootstrapOfTest, OfAMeanItIsBootstrapInterval) {
  const std::vector<double> values = {0.1, 0.25, 0.9, 0.4, 0.55};
  const auto mean = [&](const std::vector<double>& times) {
    double sum = 0.0;
    for (size_t i = 0; i < values.size(); ++i) sum += times[i] * values[i];
    return sum / static_cast<double>(values.size());
  };
  const Interval expected = BootstrapInterval(values, 7);
  const Interval interval = BootstrapOf(values.size(), 7, mean);
  EXPECT_NEAR(interval.mean, expected.mean, 1e-15);
  EXPECT_NEAR(interval.low, expected.low, 1e-15);
  EXPECT_NEAR(interval.high, expected.high, 1e-15);
}

TEST(BootstrapOfTest, ValuesThatAgreeHaveNoWidthAndNoneAreHarmless) {
  const auto one = [](const std::vector<double>&) { return 1.0; };
  const Interval interval = BootstrapOf(40, 1, one);
  EXPECT_EQ(interval.low, 1.0);
  EXPECT_EQ(interval.high, 1.0);
  EXPECT_EQ(BootstrapOf(0, 1, one).mean, 0.0);
}

}  // namespace
}  // namespace dapd
