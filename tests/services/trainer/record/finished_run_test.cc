#include "services/trainer/record/finished_run.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/charts/run_history.h"
#include "common/training/metric_table.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FinishedRunTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_ + "/evaluation").ok());
    config_.run.name = "done";
    config_.trainer.steps = 2;
  }

  void WriteSteps(int64_t steps) {
    std::string lines;
    for (int64_t step = 1; step <= steps; ++step) {
      StepReport report;
      report.step = step;
      report.adapter_digest = absl::StrCat("digest of ", step);
      report.snapshot_version = step - 1;
      report.objective.loss = 0.5 / static_cast<double>(step);
      absl::StrAppend(&lines, StepLine(report).dump(), "\n");
    }
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/metrics.jsonl", lines).ok());
  }
  void WriteEvaluation(const std::string& when, int64_t version) {
    const EvaluationReport report{.policy_version = version,
                                  .accuracy = Interval{0.25, 0.0, 0.5}};
    ASSERT_TRUE(
        WriteEvaluationReport(
            absl::StrCat(folder_, "/evaluation/", when, ".json"), report)
            .ok());
  }
  absl::Status Show() {
    return ShowFinishedRun(
        config_, folder_, {&metrics_, &status_, &history_, &answers_});
  }

  const std::string folder_ = TempPath("finished");
  Config config_;
  MetricsRegistry registry_{"trainer"};
  TrainerMetrics metrics_{registry_, config_};
  TrainerStatus status_;
  RunHistory history_;
  RunAnswers answers_;
};

TEST_F(FinishedRunTest, TheLastStepAndTheEvaluationsAreShown) {
  WriteSteps(2);
  WriteEvaluation("after", 2);
  WriteEvaluation("before", 0);
  WriteEvaluation("step-000001", 1);
  ASSERT_TRUE(Show().ok());
  const v1::GetStatusResponse shown = status_.Get();
  EXPECT_EQ(shown.run_name(), "done");
  EXPECT_EQ(shown.phase(), "done");
  EXPECT_EQ(shown.step(), 2);
  EXPECT_EQ(shown.total_steps(), 2);
  EXPECT_EQ(shown.loss(), 0.25);
  EXPECT_EQ(shown.adapter_digest(), "digest of 2");
  EXPECT_EQ(shown.snapshot_step(), 1);
  ASSERT_EQ(shown.evaluations_size(), 3);
  EXPECT_EQ(shown.evaluations(0).when(), "before");
  EXPECT_EQ(shown.evaluations(1).when(), "step-000001");
  EXPECT_EQ(shown.evaluations(2).when(), "after");
  EXPECT_EQ(history_.ToJson()["last_step"], 2);
  const std::string text = registry_.Expose();
  for (const char* line :
       {"\ndapd_trainer_phase{phase=\"done\"} 1",
        "\ndapd_trainer_policy_version 2",
        "\ndapd_checkpoint_last_step 2",
        "\ndapd_trainer_evaluation_accuracy_ratio{when=\"after\"} 0.25",
        "\ndapd_trainer_evaluation_accuracy_ratio{when=\"within\"} 0.25",
        "\ndapd_trainer_steps_total 0"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(FinishedRunTest, ADamagedEvaluationCostsNothingElse) {
  WriteSteps(2);
  ASSERT_TRUE(
      WriteFileAtomically(folder_ + "/evaluation/before.json", "{}").ok());
  ASSERT_TRUE(Show().ok());
  EXPECT_EQ(status_.Get().evaluations_size(), 0);
  EXPECT_EQ(status_.Get().loss(), 0.25);
  EXPECT_THAT(registry_.Expose(), Not(HasSubstr("evaluation_accuracy_ratio")));
}

TEST_F(FinishedRunTest, ALongerRunThanIsAskedForIsShownWhole) {
  WriteSteps(3);
  ASSERT_TRUE(Show().ok());
  EXPECT_EQ(status_.Get().step(), 3);
  EXPECT_EQ(status_.Get().total_steps(), 3);
  // No alert may find the last checkpoint too old.
  const std::string text = registry_.Expose();
  EXPECT_THAT(text, HasSubstr("\ndapd_trainer_policy_version 3"));
  EXPECT_THAT(text, HasSubstr("\ndapd_checkpoint_last_step 3"));
}

TEST_F(FinishedRunTest, ADamagedLineCostsNothingElse) {
  WriteSteps(2);
  const std::string path = folder_ + "/metrics.jsonl";
  const std::string lines = ReadFile(path, 1 << 20).value();
  ASSERT_TRUE(WriteFileAtomically(path, "{\"loss\": 1}\n" + lines).ok());
  ASSERT_TRUE(Show().ok());
  EXPECT_EQ(status_.Get().loss(), 0.25);
  EXPECT_EQ(history_.ToJson()["last_step"], 2);
}

}  // namespace
}  // namespace dapd
