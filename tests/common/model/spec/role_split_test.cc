#include "common/model/spec/role_split.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr HardwareRates kLargeGpu = {
    .flops = 400e12, .memory_bytes = 2.5e12, .network_bytes = 10e9};

double SecondsOf(const Config& config, const RoleSplit& split) {
  const Config with = WithSplit(config, split);
  const ModelConfig model = FourBillion();
  return PredictStep(with,
                     CountStepWork(with, model, LongestSamples(with), false),
                     kLargeGpu)
      .Serial();
}

absl::StatusOr<RoleSplit> Recommend(const Config& config, int64_t devices) {
  return RecommendSplit(
      config, FourBillion(), LongestSamples(config), devices, kLargeGpu);
}

// Training computes the most, so it gets the most devices.
TEST(RoleSplitTest, SevenDevicesTrainRatherThanSample) {
  const Config config;
  const auto split = Recommend(config, 7);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->ranks + split->teachers + split->rollouts, 7);
  EXPECT_EQ(split->ranks, 4);
  EXPECT_EQ(split->rollouts, 1);
  const double sampled =
      SecondsOf(config, {.ranks = 1, .teachers = 2, .rollouts = 4});
  EXPECT_LT(split->seconds, 0.7 * sampled);
}

TEST(RoleSplitTest, NoOtherSplitIsFaster) {
  Config config;
  for (const int64_t devices : {3, 5, 8, 16}) {
    const auto best = Recommend(config, devices);
    ASSERT_TRUE(best.ok()) << best.status();
    // Where the batch of 16 micro-batches is shared evenly, the prediction is
    // that of step_cost.h.
    for (const int64_t ranks : {1, 2, 4, 8}) {
      for (int64_t teachers = 1; ranks + teachers < devices; ++teachers) {
        const RoleSplit other{.ranks = ranks,
                              .teachers = teachers,
                              .rollouts = devices - ranks - teachers};
        EXPECT_LE(best->seconds, SecondsOf(config, other) * (1 + 1e-12))
            << devices << ": " << ranks << " " << teachers;
      }
    }
  }
}

// 16 micro-batches over 5 ranks take as long as over 4.
TEST(RoleSplitTest, ARankThatSavesNoTimeIsNotAskedFor) {
  for (int64_t devices = 3; devices <= 40; ++devices) {
    const auto split = Recommend(Config(), devices);
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_THAT(split->ranks, testing::AnyOf(1, 2, 3, 4, 6, 8, 16)) << devices;
  }
}

TEST(RoleSplitTest, RanksAreNoMoreThanMicroBatches) {
  Config config;
  config.trainer.batch_size = 4;
  config.trainer.micro_batch_size = 2;
  EXPECT_EQ(Recommend(config, 32)->ranks, 2);
}

TEST(RoleSplitTest, AWorkerOfSeveralProcessesTakesADeviceForEach) {
  Config config;
  config.rollout.tensor_parallel = 4;
  const auto split = Recommend(config, 8);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->rollouts, 1);
  EXPECT_EQ(split->ranks + split->teachers, 4);
}

TEST(RoleSplitTest, RolesOfWhichNothingIsAskedGetNoDevice) {
  Config config;
  config.objective.preset = "sft";
  const auto split = Recommend(config, 4);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->teachers, 0);
  EXPECT_EQ(split->rollouts, 0);
  EXPECT_EQ(split->ranks, 4);
}

TEST(RoleSplitTest, ASplitBaseNeedsRanksThatItCanBeSplitOver) {
  Config config;
  config.trainer.shard_base = true;
  const auto split = Recommend(config, 8);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->ranks, testing::AnyOf(2, 4));
  EXPECT_THAT(std::string(Recommend(config, 3).status().message()),
              HasSubstr("3 devices are too few: this configuration needs 4"));
}

}  // namespace
}  // namespace dapd
