#include "common/data/confidence_interval.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

// scipy.stats.t.ppf(0.975, df).
TEST(StudentQuantileTest, AgreesWithScipy) {
  EXPECT_NEAR(StudentQuantile975(1), 12.706204736, 1e-4);
  EXPECT_NEAR(StudentQuantile975(4), 2.7764451052, 1e-7);
  EXPECT_NEAR(StudentQuantile975(30), 2.0422724563, 1e-7);
  EXPECT_NEAR(StudentQuantile975(199), 1.9719565442, 1e-7);
}

TEST(MeanIntervalTest, IsStudentsOverTheValues) {
  // scipy.stats.t.interval(0.95, 3, loc=2.5, scale=scipy.stats.sem([1,2,3,4]))
  const Interval interval = MeanInterval({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(interval.mean, 2.5);
  EXPECT_NEAR(interval.low, 0.4457397432, 1e-6);
  EXPECT_NEAR(interval.high, 4.5542602568, 1e-6);
}

TEST(MeanIntervalTest, AllWrongStillHasWidth) {
  // statsmodels' proportion_confint(0, 40, method="wilson").
  const Interval interval = MeanInterval(std::vector<double>(40, 0.0));
  EXPECT_EQ(interval.mean, 0.0);
  EXPECT_NEAR(interval.low, 0.0, 1e-12);
  EXPECT_NEAR(interval.high, 0.0876216, 1e-6);
}

TEST(MeanIntervalTest, NoValuesAndOneValueAreHarmless) {
  EXPECT_EQ(MeanInterval({}).mean, 0.0);
  EXPECT_EQ(MeanInterval({0.4}).low, 0.4);
}

}  // namespace
}  // namespace dapd
