#include "common/model/spec/role_split.h"

#include <string>
#include <tuple>

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

absl::StatusOr<RoleSplit> Recommend(const Config& config,
                                    int64_t devices,
                                    const GivenSplit& given = {},
                                    double gib = 0) {
  return RecommendSplit(
      config,
      FourBillion(),
      LongestSamples(config),
      {.count = devices, .bytes = static_cast<int64_t>(gib * (1 << 30))},
      kLargeGpu,
      given);
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
    // If the ranks share the 16 micro-batches evenly, step_cost.h predicts the
    // same time.
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

// 16 micro-batches take as long on 5 ranks as on 4.
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
  const auto split = Recommend(Config(), 8, {.tensor_parallel = 4});
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

Config OnGpus() {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  return config;
}

using Numbers = std::tuple<int64_t, int64_t, int64_t, int64_t>;

// Returns ranks, teachers, rollout workers and the devices of each worker.
Numbers NumbersOf(const absl::StatusOr<RoleSplit>& split) {
  EXPECT_TRUE(split.ok()) << split.status();
  if (!split.ok()) return {};
  return {
      split->ranks, split->teachers, split->rollouts, split->tensor_parallel};
}

// deploy/compose.8gpu.yaml has the same split.
TEST(RoleSplitTest, EightGpusForFourBillionAreFourThreeAndOne) {
  EXPECT_EQ(NumbersOf(Recommend(OnGpus(), 8)), Numbers(4, 3, 1, 1));
}

TEST(RoleSplitTest, WhatIsGivenStaysAndTheRestFollowsFromIt) {
  const Config config = OnGpus();
  EXPECT_EQ(NumbersOf(Recommend(config, 8, {.ranks = 1, .rollouts = 2})),
            Numbers(1, 5, 2, 1));
  EXPECT_EQ(NumbersOf(Recommend(config, 8, {.teachers = 1})),
            Numbers(4, 1, 3, 1));
  EXPECT_EQ(NumbersOf(Recommend(config, 8, {.tensor_parallel = 2})),
            Numbers(4, 2, 1, 2));
  // Only the given processes are used, although devices stay unused.
  const GivenSplit all = {
      .ranks = 1, .teachers = 1, .rollouts = 1, .tensor_parallel = 1};
  EXPECT_EQ(NumbersOf(Recommend(config, 8, all)), Numbers(1, 1, 1, 1));
  EXPECT_THAT(
      std::string(Recommend(config, 8, {.ranks = 8}).status().message()),
      HasSubstr("8 devices are too few: this configuration needs 10 or "
                "more for 8 trainer ranks, 1 teachers and 1 rollout "
                "workers with 1 devices each"));
}

// Two GPUs read the weights twice as fast; the sums between them take some of
// the gain.
TEST(RoleSplitTest, AWorkerGetsMoreGpusWhereThatIsWorthItsSums) {
  const Config config = OnGpus();
  const auto on_eight = [&](double sum_seconds) {
    HardwareRates rates = kLargeGpu;
    rates.sum_seconds = sum_seconds;
    return NumbersOf(RecommendSplit(
        config, FourBillion(), LongestSamples(config), {.count = 8}, rates));
  };
  EXPECT_EQ(on_eight(8e-6), Numbers(4, 2, 1, 2));
  EXPECT_EQ(on_eight(20e-6), Numbers(4, 3, 1, 1));
  const auto split = Recommend(config, 16);
  EXPECT_GT(split->tensor_parallel, 1);
  EXPECT_EQ(split->NumDevices(), 16);
  // On CPUs no layers are split unless the configuration asks for it.
  EXPECT_EQ(Recommend(Config(), 16)->tensor_parallel, 1);
}

TEST(RoleSplitTest, AWorkerHasOnlyAsManyGpusAsDivideTheModel) {
  ModelConfig model = FourBillion();
  HardwareRates rates = kLargeGpu;
  rates.sum_seconds = 0;
  const auto of_worker = [&] {
    return RecommendSplit(
               OnGpus(), model, LongestSamples(OnGpus()), {.count = 40}, rates)
        ->tensor_parallel;
  };
  EXPECT_EQ(of_worker(), 8) << "all of a machine's";
  model.num_kv_heads = 4;
  EXPECT_EQ(of_worker(), 4);
}

TEST(RoleSplitTest, EveryProcessHasTheMemoryThatItNeeds) {
  const Config config = OnGpus();
  const MemoryPlan plan = PlanMemory(config, FourBillion());
  const double trainer =
      plan.trainer.Least() / (1 - plan.trainer.holes) / (1 << 30);
  const double teacher = plan.teacher.Least() / (1 << 30);
  ASSERT_LT(teacher, trainer);
  const auto refusal = [&](const Config& of, double gib) {
    return std::string(Recommend(of, 8, {}, gib).status().message());
  };
  // Several ranks need memory for the sums between them.
  EXPECT_EQ(NumbersOf(Recommend(config, 8, {}, trainer + 6)),
            Numbers(4, 3, 1, 1));
  EXPECT_THAT(refusal(config, trainer - 0.1),
              HasSubstr("GiB has room for a trainer rank"));
  // With half of the layers on each rank, a teacher needs the most memory.
  Config split = config;
  split.trainer.shard_base = true;
  split.trainer.pack_tokens = 4096;
  split.teacher.prefix_memory_mib = 64 * 1024;
  EXPECT_THAT(refusal(split, 60), HasSubstr("GiB has room for a teacher"));
}

}  // namespace
}  // namespace dapd
