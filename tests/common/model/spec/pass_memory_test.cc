#include "common/model/spec/pass_memory.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/model/spec/memory_plan.h"
#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kOneGiB = int64_t{1} << 30;

class PassMemoryTest : public testing::Test {
 protected:
  TrainerLimits OnGpu(int64_t gib) const {
    return PlanTrainerLimits(
               config_, model_, EmptyGpu(config_, model_, gib * kOneGiB))
        .value();
  }
  // Returns the memory of a pass with everything that the limits allow.
  double Peak(const TrainerLimits& limits) const {
    const auto tokens = static_cast<double>(limits.pack_tokens);
    return tokens * 2 * static_cast<double>(model_.hidden_size) *
               static_cast<double>(model_.num_layers) +
           2 * LayerWorkspace(config_, model_, tokens) +
           static_cast<double>(limits.activation_bytes + limits.ahead_bytes);
  }
  int64_t AllActivations(int64_t tokens) const {
    return tokens * model_.num_layers *
           LayerActivationBytes(model_, config_.lora.rank, 2);
  }

  Config config_;
  ModelConfig model_ = FourBillion();
};

TEST_F(PassMemoryTest, ACpuTakesWhatItAlwaysTook) {
  const TrainerLimits limits =
      PlanTrainerLimits(config_, model_, std::nullopt).value();
  EXPECT_EQ(limits.pack_tokens, 16384);
  EXPECT_EQ(limits.activation_bytes, kOneGiB);
  EXPECT_EQ(limits.ahead_bytes, 2 * kOneGiB);
  EXPECT_EQ(limits.chunk_tokens, 512) << "over 4 GiB of activations";
  config_.trainer.activation_memory_mib = 64 << 10;
  config_.trainer.ahead_memory_mib = 0;
  const TrainerLimits set =
      PlanTrainerLimits(config_, model_, std::nullopt).value();
  EXPECT_EQ(set.activation_bytes, 64 * kOneGiB);
  EXPECT_EQ(set.ahead_bytes, 0);
  EXPECT_EQ(set.chunk_tokens, 512) << "part of the result";
  config_.rollout.max_new_tokens = 100;
  EXPECT_EQ(PlanTrainerLimits(config_, model_, std::nullopt)->chunk_tokens, 0);
}

TEST_F(PassMemoryTest, APassByLibTorchKeepsInputsOnlyAndNeedsMoreForALayer) {
  const double by_hand = LayerWorkspace(config_, model_, 100);
  model_.score_softcap = 50;
  EXPECT_GT(LayerWorkspace(config_, model_, 100), 2 * by_hand);
  config_.trainer.activation_memory_mib = 512;
  for (const TrainerLimits& limits :
       {PlanTrainerLimits(config_, model_, std::nullopt).value(),
        OnGpu(/*gib=*/800)}) {
    EXPECT_EQ(limits.activation_bytes, 0);
    EXPECT_EQ(limits.kept_layers, 0);
    EXPECT_EQ(limits.chunk_tokens, 0) << "a pass could not begin with them";
  }
}

// Without this rule no layer would be kept, and answers would go in chunks.
TEST_F(PassMemoryTest, NoLayerRunsAgainWhileAGpuHasMemory) {
  const TrainerLimits limits = OnGpu(80);
  EXPECT_EQ(limits.pack_tokens, 16384);
  EXPECT_EQ(limits.chunk_tokens, 0);
  EXPECT_EQ(limits.kept_layers, model_.num_layers);
  EXPECT_GE(limits.activation_bytes, AllActivations(limits.longest_pack));
  EXPECT_GT(limits.ahead_bytes, 8 * kOneGiB)
      << "nor is it idle while answers come";
  EXPECT_THAT(Describe(limits, model_),
              HasSubstr("packs of 16384 tokens, answers whole, "));
  EXPECT_THAT(Describe(limits, model_), HasSubstr("(36 of 36 layers"));
}

TEST_F(PassMemoryTest, WhatAllTakeTogetherFits) {
  for (const int64_t gib : {24, 40, 48, 80, 96, 141}) {
    const DeviceMemory gpu = EmptyGpu(config_, model_, gib * kOneGiB);
    const TrainerLimits limits = OnGpu(gib);
    EXPECT_LT(Peak(limits), static_cast<double>(gpu.free)) << gib;
    EXPECT_LE(limits.pack_tokens, 16384) << gib;
    EXPECT_EQ(limits.chunk_tokens == 0, limits.kept_layers == model_.num_layers)
        << gib;
  }
  EXPECT_GT(OnGpu(141).ahead_bytes, OnGpu(80).ahead_bytes);
}

TEST_F(PassMemoryTest,
       ASmallGpuGetsShorterPacksAndThenAnErrorWithThreeNumbers) {
  config_.trainer.pack_tokens = 100'000;
  EXPECT_LT(OnGpu(40).pack_tokens, 100'000);
  EXPECT_LT(OnGpu(24).pack_tokens, OnGpu(40).pack_tokens);
  config_.rollout.max_new_tokens = 40'000;
  const DeviceMemory gpu{.total = 24 * kOneGiB, .free = 12 * kOneGiB};
  const absl::Status status = PlanTrainerLimits(config_, model_, gpu).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  for (const char* part :
       {"the trainer needs", "the GPU has 24.0 GiB, of which 12.0 are free"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

// Its views stay in one pack, although the data check limits each view alone.
TEST_F(PassMemoryTest, ASampleThatIsLongerThanAPackIsPlannedWhole) {
  config_.objective.max_reference_tokens = 7'000;
  constexpr int64_t kSample = (330 + 2 * 7'000) + (200 + 7'000);
  EXPECT_EQ(LeastPassTokens(config_), kSample);
  EXPECT_EQ(MostPassTokens(config_), kSample);
  // Returns what the adapters, a step and a pass need beside the holes.
  const GpuStepMemory step = GpuStepMemoryOf(config_, model_);
  const auto needed = [&](double tokens) {
    return 0.05 * 80 * kOneGiB + step.adapters + step.scores + step.loss +
           tokens * 2 * 2560 * 36 + 2 * LayerWorkspace(config_, model_, tokens);
  };
  const auto with = [&](double free) {
    return PlanTrainerLimits(config_,
                             model_,
                             DeviceMemory{.total = 80 * kOneGiB,
                                          .free = static_cast<int64_t>(free)});
  };
  EXPECT_FALSE(with(needed(kSample) - 1e6).ok());
  const TrainerLimits limits = with(needed(kSample) + 1e6).value();
  EXPECT_EQ(limits.pack_tokens, 16'384) << "of several samples no more";
  EXPECT_LT(limits.activation_bytes, 2'000'000) << "nothing is left to keep";
  config_.model.deterministic = true;
  EXPECT_EQ(LeastPassTokens(config_), kSample);
  EXPECT_EQ(with(needed(kSample) + 1e6)->pack_tokens, 16'384);
  config_.trainer.pack_tokens = 30'000;
  EXPECT_EQ(LeastPassTokens(config_), 30'000);
}

TEST_F(PassMemoryTest, ASampleHasTheViewsThatTermsTrain) {
  config_.rollout.max_new_tokens = 9'000;
  EXPECT_EQ(LeastPassTokens(config_), 200 + 2 * 9'000)
      << "the answer without anything privileged lies in self_rollout";
  EXPECT_EQ(OnGpu(80).longest_pack, 200 + 2 * 9'000) << "a pack of its own";
  config_.objective.self_rollout = SelfRollout::kTemplate;
  EXPECT_EQ(LeastPassTokens(config_), (330 + 2 * 9'000) + (200 + 9'000));
  config_.objective.preset = "opsd";
  EXPECT_EQ(LeastPassTokens(config_), 200 + 9'000);
  config_.objective.preset = "sft";
  EXPECT_EQ(LeastPassTokens(config_), 200 + 1'024);
}

// A trainer measures the free memory before its first pass.
TEST_F(PassMemoryTest, GatheredLayersAreLeftAloneWhereNoneIsThereYet) {
  config_.trainer.ranks = 8;
  const auto activations = [&](bool splits) {
    config_.trainer.shard_base = splits;
    config_.trainer.train_while_sampling = false;
    const DeviceMemory gpu{.total = 80 * kOneGiB, .free = 25 * kOneGiB};
    return PlanTrainerLimits(config_, model_, gpu)->activation_bytes;
  };
  // Two layers are gathered, and one projection down is copied, in bfloat16.
  const double layer = 2.0 * 2560 * (2 * 4096 + 2 * 1024 + 3 * 9728);
  const double copy = 2.0 * 2560 * 9728;
  EXPECT_NEAR(static_cast<double>(activations(false) - activations(true)),
              2 * layer + copy,
              2);
  EXPECT_EQ(GatheredBytes(config_, model_, 1), 0);
}

TEST_F(PassMemoryTest, AnswersThatFitNoWayPassInChunks) {
  config_.rollout.max_new_tokens = 38'912;
  config_.trainer.pack_tokens = 160'000;
  config_.trainer.micro_batch_size = 1;
  const TrainerLimits limits = OnGpu(141);
  EXPECT_LT(limits.kept_layers, model_.num_layers);
  EXPECT_EQ(limits.chunk_tokens, 2048) << "a GPU's least";
  EXPECT_GT(limits.ahead_bytes, 0) << "chunks have to be kept";
  config_.trainer.chunk_tokens = 0;
  EXPECT_EQ(OnGpu(141).chunk_tokens, 0);
}

TEST_F(PassMemoryTest, WhatIsPartOfTheResultDoesNotDependOnMemory) {
  config_.model.deterministic = true;
  for (const int64_t gib : {40, 80, 141}) {
    EXPECT_EQ(OnGpu(gib).pack_tokens, config_.trainer.pack_tokens) << gib;
    EXPECT_EQ(OnGpu(gib).chunk_tokens, 0) << gib;
    EXPECT_FALSE(OnGpu(gib).splits_packs) << gib;
  }
  EXPECT_FALSE(PlanTrainerLimits(config_, model_, std::nullopt)->splits_packs);
  config_.trainer.pack_tokens = 1'000'000;
  EXPECT_FALSE(PlanTrainerLimits(
                   config_, model_, EmptyGpu(config_, model_, 40 * kOneGiB))
                   .ok());
}

TEST_F(PassMemoryTest, SizesThatAreGivenStay) {
  config_.trainer.ahead_memory_mib = 4096;
  EXPECT_EQ(OnGpu(80).ahead_bytes, 4 * kOneGiB);
  config_.trainer.activation_memory_mib = 0;
  EXPECT_EQ(OnGpu(80).activation_bytes, 0);
  EXPECT_EQ(OnGpu(80).kept_layers, 0);
  config_.trainer.train_while_sampling = false;
  EXPECT_EQ(OnGpu(80).ahead_bytes, 0);
}

TEST_F(PassMemoryTest, ProcessesOnOneGpuTakeEvenParts) {
  // Another process has taken its memory first.
  const DeviceMemory all{
      .total = 90 * kOneGiB, .free = 50 * kOneGiB, .own = 10 * kOneGiB};
  EXPECT_EQ(ShareOf(all, 1).free, 50 * kOneGiB);
  EXPECT_EQ(ShareOf(all, 3).total, 30 * kOneGiB);
  EXPECT_EQ(ShareOf(all, 3).free, 20 * kOneGiB);
  EXPECT_EQ(ShareOf({.total = 90 * kOneGiB, .free = kOneGiB, .own = 0}, 3).free,
            kOneGiB);
  EXPECT_EQ(
      ShareOf({.total = 9 * kOneGiB, .free = kOneGiB, .own = 4 * kOneGiB}, 3)
          .free,
      0);
  config_.run.gpu_processes = 3;
  const TrainerLimits limits = OnGpu(80);
  EXPECT_LT(Peak(limits) + BaseBytesOfRank(config_, model_, 1),
            80.0 / 3 * kOneGiB);
}

}  // namespace
}  // namespace dapd
