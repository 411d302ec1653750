#include "services/trainer/record/run_recorder.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/steady_time.h"
#include "common/charts/run_history.h"
#include "common/config/load_config.h"
#include "common/metrics/metrics_registry.h"
#include "common/training/metric_table.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/status_message.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tests what a trainer that goes on after a step shows of one run folder.
class RunRecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = JoinPath(path_, "config.yaml");
    ASSERT_TRUE(MakeDirectories(path_).ok());
    ASSERT_TRUE(
        WriteFileAtomically(file,
                            absl::StrCat("model: {path: ",
                                         path_,
                                         "}\nrun: {name: watched, output_dir: ",
                                         path_,
                                         "}\n"))
            .ok());
    auto loaded = LoadConfig(file, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
  }

  // Closes the files of an earlier trainer and starts a new trainer.
  void Start(int64_t start_step) {
    recorder_ = nullptr;
    folder_ = nullptr;
    folder_ = std::make_unique<RunFolder>(
        RunFolder::Open(loaded_.config.run).value());
    registry_ = std::make_unique<MetricsRegistry>("trainer", "watched");
    metrics_ = std::make_unique<TrainerMetrics>(*registry_, loaded_.config);
    status_ = std::make_unique<TrainerStatus>();
    history_ = std::make_unique<RunHistory>();
    answers_ = std::make_unique<RunAnswers>();
    auto recorder = RunRecorder::Create(
        loaded_,
        *folder_,
        start_step,
        Dataset(),
        {metrics_.get(), status_.get(), history_.get(), answers_.get()});
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    recorder_ = *std::move(recorder);
  }

  // Records a step whose loss falls while its true divergence rises.
  void Record(int64_t step) {
    const auto at = static_cast<double>(step);
    StepReport report;
    report.step = step;
    report.objective.terms = {{.name = "privileged_rollout",
                               .value = 0.1 - 0.01 * at,
                               .unclipped = 0.5 + 0.01 * at,
                               .weight = 1.0,
                               .tokens = 9}};
    recorder_->CompareSteps(&report);
    ASSERT_TRUE(recorder_->RecordStep(report).ok());
    recorder_->ShowStep(report);
  }

  const std::string path_ = TempPath("runs");
  LoadedConfig loaded_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<MetricsRegistry> registry_;
  std::unique_ptr<TrainerMetrics> metrics_;
  std::unique_ptr<TrainerStatus> status_;
  std::unique_ptr<RunHistory> history_;
  std::unique_ptr<RunAnswers> answers_;
  std::unique_ptr<RunRecorder> recorder_;
};

TEST_F(RunRecorderTest, WhatTheClipHidesIsShownAlsoByARunThatGoesOn) {
  Start(0);
  for (int64_t step = 1; step <= 20; ++step) {
    EXPECT_EQ(status_->Get().warnings_size(), 0) << step;
    Record(step);
  }
  ASSERT_EQ(status_->Get().warnings_size(), 1);
  EXPECT_EQ(status_->Get().warnings(0).term(), "privileged_rollout");
  EXPECT_EQ(status_->Get().warnings(0).step(), 20);
  EXPECT_THAT(status_->Get().warnings(0).text(), HasSubstr("clip"));
  const auto hides =
      history_->ToJson()["series"]["terms/privileged_rollout/clip_hides"];
  EXPECT_EQ(hides[18], 0);
  EXPECT_EQ(hides[19], 1);

  Start(20);
  EXPECT_EQ(status_->Get().warnings_size(), 1);
  EXPECT_EQ(history_->ToJson()["last_step"], 20);
  Start(19);
  EXPECT_EQ(status_->Get().warnings_size(), 0) << "step 20 is done again";
  Record(20);
  EXPECT_EQ(status_->Get().warnings_size(), 1);
}

TEST_F(RunRecorderTest, ARunGoesOnBehindALossThatIsNotFinite) {
  Start(0);
  StepReport report;
  report.step = 1;
  report.objective.loss = std::numeric_limits<double>::quiet_NaN();
  report.samples = 4;
  ASSERT_TRUE(recorder_->RecordStep(report).ok());
  recorder_->ShowStep(report);
  EXPECT_TRUE(std::isnan(status_->Get().loss()));
  Start(1);
  EXPECT_EQ(status_->Get().step(), 1);
  EXPECT_TRUE(std::isnan(status_->Get().loss()));
}

TEST_F(RunRecorderTest, ADamagedLineCostsOnlyThatLine) {
  Start(0);
  for (int64_t step = 1; step <= 6; ++step) Record(step);
  const std::string path = folder_->File("metrics.jsonl");
  std::vector<std::string> lines =
      absl::StrSplit(ReadFile(path, 1 << 20).value(), '\n');
  const std::vector<std::string> whole = lines;
  // Each line loses something that one of the readers needs.
  lines[1][0] = 'x';
  lines[2] = absl::StrReplaceAll(lines[2], {{"\"step\"", "\"stfp\""}});
  lines[3] = absl::StrReplaceAll(lines[3], {{"\"tokens\"", "\"tokenr\""}});
  lines[5] = absl::StrReplaceAll(lines[5], {{"\"samples\"", "\"sampler\""}});
  const std::string damaged = absl::StrJoin(lines, "\n");
  ASSERT_TRUE(WriteFileAtomically(path, damaged).ok());
  testing::internal::CaptureStderr();
  Start(6);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("metrics.jsonl:2 is damaged"));
  EXPECT_THAT(log, HasSubstr("left out (the first of 3)"));
  EXPECT_EQ(ReadFile(path, 1 << 20).value(),
            absl::StrCat(whole[0], "\n", whole[4], "\n", lines[5], "\n"));
  EXPECT_EQ(ReadFile(path + ".damaged", 1 << 20).value(), damaged);
  EXPECT_EQ(status_->Get().start_step(), 6);
  Record(7);
}

TEST_F(RunRecorderTest, WhatComesBeforeTheFirstStepIsNoPartOfItsTime) {
  Start(0);
  absl::SleepFor(absl::Milliseconds(50));  // an evaluation takes time
  const absl::Time begin = SteadyNow();
  recorder_->BeginPhase(TrainerPhase::kRollout);
  Record(1);
  EXPECT_GT(status_->Get().seconds_per_step(), 0.0);
  EXPECT_LE(status_->Get().seconds_per_step(),
            absl::ToDoubleSeconds(SteadyNow() - begin));
}

TEST_F(RunRecorderTest, OfAllEvaluationsOnlyTheFiguresAreKept) {
  Start(0);
  EvaluationReport report{.adapter_digest = "abc",
                          .accuracy = Interval{0.5, 0.4, 0.6}};
  report.answers = {{.text = "an answer"}};
  recorder_->ShowEvaluation("before", report);
  ASSERT_TRUE(recorder_->WriteEvaluation("before", report).ok());
  for (int i = 0; i < 2; ++i) {
    const EvaluationReport& kept = recorder_->evaluations().all().at("before");
    EXPECT_EQ(kept.accuracy->mean, 0.5);
    EXPECT_TRUE(kept.answers.empty());
    EXPECT_EQ(answers_->Get().held_out.size(), 1U);
    Start(0);
    EXPECT_TRUE(recorder_->RecallEvaluation("before", "abc").value());
  }
}

TEST_F(RunRecorderTest, ClaimsThatRiseAreAWarningAlsoOfARunThatGoesOn) {
  const auto evaluate = [&](const std::string& when, int64_t step, double at) {
    const EvaluationReport report{
        .policy_version = step,
        .adapter_digest = "abc",
        .claims =
            ClaimFigures{.problems = 8, .none = {at, at - 0.001, at + 0.001}}};
    recorder_->ShowEvaluation(when, report);
    ASSERT_TRUE(recorder_->WriteEvaluation(when, report).ok());
  };
  Start(0);
  evaluate("before", 0, 0.01);
  Record(1);
  evaluate("step-000001", 1, 0.012);
  EXPECT_EQ(status_->Get().warnings_size(), 0);
  Record(2);
  evaluate("step-000002", 2, 0.2);
  ASSERT_EQ(status_->Get().warnings_size(), 1);
  EXPECT_EQ(status_->Get().warnings(0).term(), kClaimWarning);
  EXPECT_EQ(status_->Get().warnings(0).step(), 2);
  Record(3);
  EXPECT_EQ(status_->Get().warnings_size(), 1) << "a step keeps it";
  Start(3);
  EXPECT_EQ(status_->Get().warnings_size(), 1);
  Start(1);
  EXPECT_EQ(status_->Get().warnings_size(), 0) << "step 2 is done again";
}

std::string EventFiles(const std::string& folder) {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path();
    if (!absl::StrContains(path, "tfevents")) continue;
    text += ReadFile(path, 1 << 20).value();
  }
  return text;
}

TEST_F(RunRecorderTest, TensorBoardIsToldFromWhichStepOnARunIsDoneAgain) {
  // The bytes are Event {step = 2, session_log = 7 {status = START}}.
  const std::string restart = "\x10\x02\x3a\x02\x08\x01";
  Start(0);
  Record(1);
  Record(2);
  EXPECT_THAT(EventFiles(recorder_->folder()), Not(HasSubstr(restart)));
  Start(1);
  EXPECT_THAT(EventFiles(recorder_->folder()), HasSubstr(restart));
}

TEST_F(RunRecorderTest, AnEvaluationThatIsRecalledIsInTensorBoardAgain) {
  const auto events = [&] {
    const std::vector<std::string> parts =
        absl::StrSplit(EventFiles(recorder_->folder()), "eval/accuracy");
    return parts.size() - 1;
  };
  Start(0);
  Record(1);
  Record(2);
  const EvaluationReport report{.policy_version = 2,
                                .adapter_digest = "abc",
                                .accuracy = Interval{0.5, 0.4, 0.6}};
  recorder_->ShowEvaluation("step-000002", report);
  ASSERT_TRUE(recorder_->WriteEvaluation("step-000002", report).ok());
  EXPECT_EQ(events(), 1u);
  Start(1);  // drops all events behind step 1
  Record(2);
  EXPECT_TRUE(recorder_->RecallEvaluation("step-000002", "abc").value());
  EXPECT_EQ(events(), 2u);
  Start(2);
  EXPECT_TRUE(recorder_->RecallEvaluation("step-000002", "abc").value());
  EXPECT_EQ(events(), 2u) << "what is there is still shown";
}

// The alert NoProgress learns from it why no step has ended for so long.
TEST_F(RunRecorderTest, TheEndOfAnEvaluationIsKnownOnceOneEndedHere) {
  constexpr char kEnd[] = "\ndapd_trainer_last_evaluation_timestamp_seconds{";
  constexpr char kAccuracy[] = "\ndapd_trainer_evaluation_accuracy_ratio{";
  Start(0);
  EXPECT_THAT(registry_->Expose(), Not(HasSubstr(kEnd)));
  const EvaluationReport report{.accuracy = Interval{0.5, 0.4, 0.6}};
  recorder_->ShowEvaluation("before", report);
  EXPECT_THAT(registry_->Expose(), HasSubstr(kEnd));
  ASSERT_TRUE(recorder_->WriteEvaluation("before", report).ok());
  Start(1);
  EXPECT_THAT(registry_->Expose(), HasSubstr(kAccuracy));
  EXPECT_THAT(registry_->Expose(), Not(HasSubstr(kEnd)));
}

}  // namespace
}  // namespace dapd
