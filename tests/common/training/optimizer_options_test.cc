#include "common/training/optimizer_options.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(OptimizerOptionsTest, TheRateFallsLinearlyFromTheFirstStep) {
  const OptimizerOptions options{.learning_rate = 1.0, .schedule_steps = 500};
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 1), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 200), 1.0 - 199.0 / 500.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 501), 0.0);
  EXPECT_DOUBLE_EQ(LearningRateAt(options, 600), 0.0);
}

TEST(OptimizerOptionsTest, ThePolicyBeforeIsKeptWhereItStillSamples) {
  Config config;
  EXPECT_FALSE(MakeOptimizerOptions(config).keep_previous);
  config.rollout.max_staleness = 1;
  EXPECT_TRUE(MakeOptimizerOptions(config).keep_previous);
}

TEST(OptimizerOptionsTest, OnlyATermThatReadsTheMovingAverageHasItKept) {
  Config config;
  config.teacher.ema_rate = 0.2;
  EXPECT_FALSE(MakeOptimizerOptions(config).ema_rate.has_value());
  config.objective.terms = {
      {.target = TeacherPass{.weights = WeightSet::kEma}}};
  EXPECT_EQ(MakeOptimizerOptions(config).ema_rate, 0.2);
}

}  // namespace
}  // namespace dapd
