// Tests the best adapter on held-out problems, which a run with
// evaluation.interval keeps in adapter-best/.

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "services/trainer/record/evaluation_report.h"
#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using BestAdapterTest = TrainerLoopTest;

// A lost attempt has evaluated an adapter that this attempt does not reach.
TEST_F(BestAdapterTest, WhatIsNotReachedAgainDoesNotKeepTheBestFromBeingKept) {
  Config& config = EvaluateEvery(1);
  ASSERT_TRUE(Run(0).ok());
  const std::string run = JoinPath(folder_, config.run.name);
  const std::string lost = run + "/evaluation/step-000003.json";
  EvaluationReport report = ReadEvaluationReport(lost).value();
  report.adapter_digest = "of other bits";
  report.accuracy = Interval{1.0, 1.0, 1.0};
  ASSERT_TRUE(WriteEvaluationReport(lost, report).ok());
  std::filesystem::remove_all(run + "/adapter-best");
  ASSERT_TRUE(Run(0).ok());
  EXPECT_TRUE(FileExists(run + "/adapter-best"));
}

TEST_F(BestAdapterTest, TheEndOfAShorterRunMayStayTheBest) {
  Config& config = EvaluateEvery(3);
  const uint64_t of_held_out = config.run.seed + 1;
  answer_of_ = [this, of_held_out](const SamplingKey& key) {
    return Boxed(key.seed == of_held_out && key.step == 2 ? "123" : "5");
  };
  config.trainer.steps = 2;
  ASSERT_TRUE(Run(0).ok());
  const std::string run = JoinPath(folder_, config.run.name);
  const std::string file = run + "/adapter-best/adapter_model.safetensors";
  const std::string best = ReadFile(file, 1 << 24).value();
  config.trainer.steps = 4;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(ReadFile(file, 1 << 24).value(), best);
  const auto summary =
      ParseJson(ReadFile(run + "/summary.json", 1 << 20).value(), "summary");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->at("best"), "step-000002");
}

TEST_F(BestAdapterTest, TheBestAdapterStaysBesideTheNewest) {
  Config& config = EvaluateEvery(0);
  const std::string run = JoinPath(folder_, config.run.name);
  ASSERT_TRUE(Run(0).ok());
  EXPECT_FALSE(FileExists(run + "/adapter-best"));
  std::filesystem::remove_all(run);
  config.evaluation.interval = 3;
  // No answer is ever right: of equal adapters the earliest is the best.
  ASSERT_TRUE(Run(0).ok());
  const auto bytes = [&](const std::string& adapter) {
    return ReadFile(run + "/" + adapter + "/adapter_model.safetensors", 1 << 24)
        .value();
  };
  EXPECT_NE(bytes("adapter-best"), bytes("adapter"));
  const auto summary =
      ParseJson(ReadFile(run + "/summary.json", 1 << 20).value(), "summary");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->at("best"), "step-000003");
  const auto kept = ReadEvaluationReport(run + "/adapter-best/evaluation.json");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->policy_version, 3);
}

// Without a checkpoint its step might be done again, and give another adapter.
TEST_F(BestAdapterTest, TheBestAdapterIsKeptOnlyBehindACheckpoint) {
  Config& config = EvaluateEvery(1);
  config.checkpoint.keep = 0;
  const uint64_t of_held_out = config.run.seed + 1;
  answer_of_ = [this, of_held_out](const SamplingKey& key) {
    return Boxed(key.seed == of_held_out && key.step == 3 ? "123" : "5");
  };
  const std::string run = JoinPath(folder_, config.run.name);
  const auto has_checkpoint = [&](int64_t step) {
    return FileExists(absl::StrCat(run, "/checkpoints/step-00000", step));
  };
  on_phase_ = [&](TrainerPhase phase) {
    const auto kept =
        ReadEvaluationReport(run + "/adapter-best/evaluation.json");
    if (phase == TrainerPhase::kRollout && kept.ok()) {
      EXPECT_TRUE(has_checkpoint(kept->policy_version));
    }
  };
  ASSERT_TRUE(Run(0).ok());
  // The first and the third adapters are the best so far; the last checkpoint
  // is the end of the run.
  EXPECT_TRUE(has_checkpoint(1));
  EXPECT_FALSE(has_checkpoint(2));
  EXPECT_TRUE(has_checkpoint(3));
  EXPECT_TRUE(has_checkpoint(4));
}

}  // namespace
}  // namespace dapd
