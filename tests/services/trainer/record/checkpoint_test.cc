#include "services/trainer/record/checkpoint.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Pointwise;

MATCHER(SameTensor, "") {
  return at::equal(std::get<0>(arg).detach(), std::get<1>(arg).detach());
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTinyModel(folder_ + "/model", 7);
    model_ = ReadModelConfig(folder_ + "/model").value();
    identity_.settings = {{"rollout.max_staleness", "1"}};
    ASSERT_TRUE(MakeDirectories(checkpoints_).ok());
  }

  std::unique_ptr<Policy> MakePolicy(bool keep_previous) const {
    return std::make_unique<Policy>(
        MakeFreshAdapter(model_, {.rank = 2, .alpha = 4}, 7, at::kCPU),
        std::nullopt,
        OptimizerOptions{.learning_rate = 0.1, .keep_previous = keep_previous});
  }
  static void TakeStep(Policy& policy) {
    policy.SetFlatGradient(at::ones_like(policy.FlatGradient()));
    ASSERT_TRUE(policy.Step().ok());
  }
  void Save(const Policy& policy) const {
    const absl::Status saved =
        SaveCheckpoint(checkpoints_, model_, policy, identity_, /*keep=*/2);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  absl::StatusOr<std::optional<PolicyState>> Load() const {
    return LoadNewestCheckpoint(checkpoints_, identity_, model_, at::kCPU);
  }
  std::string PreviousOf(const std::string& step) const {
    return JoinPath(checkpoints_, step + "/previous/adapter_model.safetensors");
  }

  const std::string folder_ = TempPath("checkpoint_test");
  const std::string checkpoints_ = JoinPath(folder_, "checkpoints");
  ModelConfig model_;
  RunIdentity identity_;
};

TEST_F(CheckpointTest, ThePolicyBeforeTheLastStepComesBackWithIt) {
  const auto policy = MakePolicy(/*keep_previous=*/true);
  TakeStep(*policy);
  const Adapter before = policy->live().Clone();
  TakeStep(*policy);
  Save(*policy);
  auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_TRUE((*state)->previous.has_value());
  EXPECT_THAT((*state)->previous->Tensors(),
              Pointwise(SameTensor(), before.Tensors()));
  EXPECT_THAT((*state)->live.Tensors(),
              Pointwise(SameTensor(), policy->live().Tensors()));
  const auto restored =
      Policy::Restore(**std::move(state), {.keep_previous = true});
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_THAT((*restored)->previous()->Tensors(),
              Pointwise(SameTensor(), before.Tensors()));
}

TEST_F(CheckpointTest, TheAdapterThatARunStartedFromComesBackAsItsSnapshot) {
  const Adapter start =
      MakeFreshAdapter(model_, {.rank = 2, .alpha = 4}, 7, at::kCPU);
  Policy policy(start, start.Clone(), {.learning_rate = 0.1});
  TakeStep(policy);
  Save(policy);
  auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ((*state)->snapshot_version, 0);
  ASSERT_TRUE((*state)->snapshot.has_value());
  EXPECT_THAT((*state)->snapshot->Tensors(),
              Pointwise(SameTensor(), start.Tensors()));
}

TEST_F(CheckpointTest, WithoutALagThereIsNoSuchPolicy) {
  const auto policy = MakePolicy(/*keep_previous=*/false);
  TakeStep(*policy);
  Save(*policy);
  const auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE((*state)->previous.has_value());
  EXPECT_FALSE(fs::exists(checkpoints_ + "/step-000001/previous"));
  const std::string text =
      ReadFile(checkpoints_ + "/step-000001/state.json", 1 << 20).value();
  EXPECT_THAT(text, ::testing::Not(HasSubstr("previous_step")));
}

TEST_F(CheckpointTest, TheMovingAverageComesBackAndGoesOnBitForBit) {
  const OptimizerOptions options{.learning_rate = 0.1, .ema_rate = 0.3};
  Policy policy(MakeFreshAdapter(model_, {.rank = 2, .alpha = 4}, 7, at::kCPU),
                std::nullopt,
                options);
  TakeStep(policy);
  Save(policy);
  auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  const auto restored = Policy::Restore(**std::move(state), options);
  ASSERT_TRUE(restored.ok()) << restored.status();
  TakeStep(policy);
  TakeStep(**restored);
  EXPECT_THAT((*restored)->ema()->Tensors(),
              Pointwise(SameTensor(), policy.ema()->Tensors()));
}

TEST_F(CheckpointTest, WithoutAMovingAverageThereIsNone) {
  const auto policy = MakePolicy(/*keep_previous=*/false);
  TakeStep(*policy);
  Save(*policy);
  auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE((*state)->ema.has_value());
  EXPECT_FALSE(fs::exists(checkpoints_ + "/step-000001/ema"));
  // A run that needs a moving average cannot go on from this checkpoint.
  EXPECT_FALSE(Policy::Restore(**std::move(state), {.ema_rate = 0.3}).ok());
}

TEST_F(CheckpointTest, ADamagedOrMissingPolicyBeforeTheLastStepIsFound) {
  for (const bool missing : {false, true}) {
    fs::remove_all(checkpoints_);
    ASSERT_TRUE(MakeDirectories(checkpoints_).ok());
    const auto policy = MakePolicy(/*keep_previous=*/true);
    for (int step = 1; step <= 2; ++step) {
      TakeStep(*policy);
      Save(*policy);
    }
    const std::string path = PreviousOf("step-000002");
    std::string bytes = ReadFile(path, 1 << 20).value();
    if (missing) {
      fs::remove(path);
    } else {
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
    }
    const auto state = Load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ((*state)->version, 1) << "the one before is taken";
    EXPECT_TRUE(fs::exists(checkpoints_ + "/step-000002.damaged"));
  }
}

// The checkpoint that was set aside first must not prevent the second.
TEST_F(CheckpointTest, AStepsCheckpointMayBeDamagedTwice) {
  const auto policy = MakePolicy(/*keep_previous=*/false);
  TakeStep(*policy);
  Save(*policy);
  TakeStep(*policy);
  for (int attempt = 1; attempt <= 2; ++attempt) {
    Save(*policy);
    const std::string path =
        checkpoints_ + "/step-000002/optimizer.safetensors";
    ASSERT_TRUE(WriteFileAtomically(path, "damaged").ok());
    const auto state = Load();
    ASSERT_TRUE(state.ok()) << attempt << ": " << state.status();
    EXPECT_EQ((*state)->version, 1);
  }
}

TEST_F(CheckpointTest, ARunWhoseCheckpointsAreAllDamagedDoesNotBeginAnew) {
  const auto policy = MakePolicy(/*keep_previous=*/false);
  TakeStep(*policy);
  Save(*policy);
  const std::string path = checkpoints_ + "/step-000001/optimizer.safetensors";
  ASSERT_TRUE(WriteFileAtomically(path, "damaged").ok());
  // A restart of the process, however often, must not lose the error.
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto state = Load();
    EXPECT_TRUE(absl::IsDataLoss(state.status()))
        << attempt << ": " << state.status();
    EXPECT_THAT(std::string(state.status().message()),
                HasSubstr("restore one from a copy"));
  }
}

TEST_F(CheckpointTest, OneThatCannotBeReadIsNotTakenForDamaged) {
  const auto policy = MakePolicy(/*keep_previous=*/false);
  for (int step = 1; step <= 2; ++step) {
    TakeStep(*policy);
    Save(*policy);
  }
  const std::string path = checkpoints_ + "/step-000002/optimizer.safetensors";
  const auto unreadable = [&] {
    const ClosedPath closed(path);
    return Load();
  }();
  EXPECT_FALSE(unreadable.ok());
  EXPECT_FALSE(absl::IsDataLoss(unreadable.status())) << unreadable.status();
  EXPECT_THAT(std::string(unreadable.status().message()), HasSubstr(path));
  EXPECT_FALSE(fs::exists(checkpoints_ + "/step-000002.damaged"));
  const auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ((*state)->version, 2);
}

TEST_F(CheckpointTest, AFolderThatCannotBeListedIsNotTakenForAnEmptyOne) {
  fs::remove_all(checkpoints_);
  EXPECT_FALSE(Load().value().has_value());
  ASSERT_TRUE(WriteFileAtomically(checkpoints_, "no folder").ok());
  EXPECT_FALSE(Load().ok());
}

TEST_F(CheckpointTest, AStepOfMoreDigitsIsALaterOne) {
  const auto first = MakePolicy(/*keep_previous=*/false);
  TakeStep(*first);
  Save(*first);
  auto state = Load();
  ASSERT_TRUE(state.ok()) << state.status();
  (*state)->version = 999'998;
  const auto restored =
      Policy::Restore(**std::move(state), {.learning_rate = 0.1});
  ASSERT_TRUE(restored.ok()) << restored.status();
  for (int step = 0; step < 2; ++step) {
    TakeStep(**restored);
    Save(**restored);
  }
  // Two checkpoints are kept.
  EXPECT_TRUE(fs::exists(checkpoints_ + "/step-999999"));
  EXPECT_TRUE(fs::exists(checkpoints_ + "/step-1000000"));
  const auto newest = Load();
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)->version, 1'000'000);
}

TEST_F(CheckpointTest, WhatACrashLeftOfOthersIsRemoved) {
  // This version gives such names, with any process id, and so did earlier
  // versions.
  for (const char* name : {"/step-000001.tmp-1/adapter",
                           "/step-000009.tmp-99999999",
                           "/step-000001.tmp/adapter",
                           "/step-000009.tmp"}) {
    ASSERT_TRUE(MakeDirectories(checkpoints_ + name).ok());
  }
  const auto policy = MakePolicy(/*keep_previous=*/false);
  TakeStep(*policy);
  TakeStep(*policy);
  Save(*policy);
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints_),
                          fs::directory_iterator()),
            1);
}

TEST_F(CheckpointTest, AsManyStayAsAreToBeKeptAndAllOfThemForZero) {
  const auto count = [&](int64_t keep) {
    fs::remove_all(checkpoints_);
    EXPECT_TRUE(MakeDirectories(checkpoints_).ok());
    const auto policy = MakePolicy(/*keep_previous=*/false);
    for (int step = 1; step <= 4; ++step) {
      TakeStep(*policy);
      EXPECT_TRUE(
          SaveCheckpoint(checkpoints_, model_, *policy, identity_, keep).ok());
    }
    return std::distance(fs::directory_iterator(checkpoints_),
                         fs::directory_iterator());
  };
  EXPECT_EQ(count(1), 1);
  EXPECT_EQ(count(3), 3);
  EXPECT_EQ(count(0), 4);
}

}  // namespace
}  // namespace dapd
