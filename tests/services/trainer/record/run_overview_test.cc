#include "services/trainer/record/run_overview.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/disk_wait.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class RunOverviewTest : public ::testing::Test {
 protected:
  RunOverviewTest() : folder_(TempPath("runs") + "/first") {}
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_ + "/evaluation").ok());
    Write("config.yaml", "trainer:\n  steps: 2  # file:4\n");
    Write("metrics.jsonl",
          "{\"step\": 1, \"loss\": 0.5, \"adapter_digest\": \"aa\"}\n"
          "{\"step\": 2, \"loss\": 0.25, \"adapter_digest\": \"bb\"}\n"
          "{\"step\": 3, \"lo");
    Write(".lock", "");
    ASSERT_TRUE(WriteEvaluationReport(
                    folder_ + "/evaluation/before.json",
                    {.accuracy = Interval{.mean = 0.5, .low = 0, .high = 1}})
                    .ok());
    ASSERT_TRUE(WriteEvaluationReport(
                    folder_ + "/evaluation/after.json",
                    {.accuracy = Interval{.mean = 1, .low = 0.5, .high = 1}})
                    .ok());
  }
  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/" + name, text).ok());
  }
  RunState State() const {
    const auto run = ReadRunOverview(folder_);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? run->state : RunState::kRunning;
  }

  const std::string folder_;
};

TEST_F(RunOverviewTest, TheLastWholeStepCounts) {
  const auto run = ReadRunOverview(folder_ + "/");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->name, "first");
  EXPECT_EQ(run->step, 2);
  EXPECT_EQ(run->steps, 2);
  EXPECT_EQ(run->loss, 0.25);
  EXPECT_EQ(run->adapter_digest, "bb");
  EXPECT_EQ(run->before->accuracy->mean, 0.5);
  EXPECT_FALSE(run->after.has_value()) << "of a run that is not done";
  EXPECT_GT(run->last_written, absl::UnixEpoch());
}

TEST_F(RunOverviewTest, TheStateIsWhatLockSummaryAndOutcomeSay) {
  EXPECT_EQ(State(), RunState::kInterrupted);
  ASSERT_TRUE(
      WriteOutcome(folder_, OutcomeOf(absl::CancelledError("told to"))).ok());
  EXPECT_EQ(State(), RunState::kInterrupted);
  ASSERT_TRUE(
      WriteOutcome(folder_, OutcomeOf(absl::DataLossError("not finite"))).ok());
  EXPECT_EQ(State(), RunState::kFailed);
  EXPECT_EQ(ReadRunOverview(folder_)->outcome->message, "not finite");
  EXPECT_EQ(ReadRunOverview(folder_)->outcome->exit_code, 6);
  {
    const auto held = RunFolder::Open(
        {.name = "first",
         .output_dir = std::filesystem::path(folder_).parent_path()});
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(State(), RunState::kRunning);
  }
  ForgetOutcome(folder_);
  EXPECT_EQ(State(), RunState::kInterrupted);
  Write("summary.json", "{\"steps\": 2}");
  EXPECT_EQ(State(), RunState::kFinished);
  EXPECT_EQ(ReadRunOverview(folder_)->after->accuracy->mean, 1.0);
}

TEST_F(RunOverviewTest, FiguresOfOtherProblemsDoNotStandBesideThoseAfter) {
  for (const char* when : {"before", "after"}) {
    ASSERT_TRUE(WriteEvaluationReport(
                    absl::StrCat(folder_, "/evaluation/", when, ".json"),
                    {.held_out_digest = when})
                    .ok());
  }
  EXPECT_TRUE(ReadRunOverview(folder_)->before.has_value());
  Write("summary.json", "{\"steps\": 2}");
  const auto run = ReadRunOverview(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->before.has_value());
  EXPECT_TRUE(run->after.has_value());
}

TEST_F(RunOverviewTest, ARunOfAnyNumberOfEvaluationsIsFinished) {
  std::string summary = "{\"steps\": 2, \"evaluation\": {";
  for (int64_t step = 1; step <= 10'000; ++step) {
    absl::StrAppend(&summary,
                    step == 1 ? "" : ", ",
                    "\"step-",
                    step,
                    "\": \"",
                    std::string(1'750, 'x'),
                    "\"");
  }
  Write("summary.json", summary + "}}");
  EXPECT_EQ(FinishedStep(folder_), 2);
  EXPECT_EQ(State(), RunState::kFinished);
}

TEST_F(RunOverviewTest, ARunThatWaitsForItsDiskIsPaused) {
  {
    const auto held = RunFolder::Open(
        {.name = "first",
         .output_dir = std::filesystem::path(folder_).parent_path()});
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(State(), RunState::kRunning);
    const DiskWait wait(folder_);
    EXPECT_EQ(State(), RunState::kPaused);
  }
  EXPECT_EQ(State(), RunState::kInterrupted);
}

TEST_F(RunOverviewTest, AnInstantsLookAtTheLockKeepsNobodyOut) {
  absl::Status opened = absl::UnavailableError("not tried");
  // On a busy machine a look may take longer than an instant.
  for (int i = 0; i < 20 && !opened.ok(); ++i) {
    const int look = ::open((folder_ + "/.lock").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(look, 0);
    ASSERT_EQ(::flock(look, LOCK_SH | LOCK_NB), 0);
    std::thread ends([look] {
      ::usleep(30'000);
      ::close(look);
    });
    opened = RunFolder::Open(
                 {.name = "first",
                  .output_dir = std::filesystem::path(folder_).parent_path()})
                 .status();
    ends.join();
  }
  EXPECT_TRUE(opened.ok()) << opened;
}

TEST_F(RunOverviewTest, ARunThatHasTakenNoStepIsOne) {
  std::filesystem::remove(folder_ + "/metrics.jsonl");
  std::filesystem::remove(folder_ + "/.lock");
  const auto run = ReadRunOverview(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->step, 0);
  EXPECT_FALSE(run->loss.has_value());
  ASSERT_TRUE(
      WriteOutcome(folder_, OutcomeOf(absl::InternalError("no worker"))).ok());
  EXPECT_EQ(State(), RunState::kFailed);
  EXPECT_EQ(ReadRunOverview(folder_)->steps, 2) << "it had begun";
}

TEST_F(RunOverviewTest, AStepMayLackAllButItsNumber) {
  for (const char* line :
       {"{\"step\": 1}",
        "{\"step\": 1, \"loss\": null, \"adapter_digest\": 7}"}) {
    Write("metrics.jsonl", absl::StrCat(line, "\n"));
    const auto run = ReadRunOverview(folder_);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->step, 1);
    EXPECT_FALSE(run->loss.has_value());
    EXPECT_EQ(run->adapter_digest, "");
  }
}

TEST_F(RunOverviewTest, ARunThatEndedBeforeItBeganIsOneThatFailed) {
  std::filesystem::remove(folder_ + "/config.yaml");
  const absl::Status failure = DataError("there is no data file");
  ASSERT_TRUE(WriteOutcome(folder_, OutcomeOf(failure)).ok());
  EXPECT_FALSE(ReadRunOverview(folder_).ok()) << "its configuration is lost";
  std::filesystem::remove(folder_ + "/metrics.jsonl");
  const auto run = ReadRunOverview(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->state, RunState::kFailed);
  EXPECT_EQ(run->outcome->message, "there is no data file");
  EXPECT_EQ(run->steps, 0);
  EXPECT_GT(run->last_written, absl::UnixEpoch());
  ASSERT_TRUE(
      WriteOutcome(folder_, OutcomeOf(absl::CancelledError("stopped early")))
          .ok());
  EXPECT_EQ(State(), RunState::kInterrupted);
}

TEST_F(RunOverviewTest, AnOutcomeThatNobodyWroteIsNone) {
  for (const char* text : {"",
                           "[]",
                           "{\"state\": \"failed\"}",
                           "{\"state\": \"odd\", \"exit_code\": 1, "
                           "\"message\": \"\", \"time\": 1}",
                           "{\"state\": 1}"}) {
    Write("outcome.json", text);
    EXPECT_FALSE(ReadOutcome(folder_).has_value()) << text;
  }
}

TEST_F(RunOverviewTest, WhatCannotBeReadIsNamed) {
  const auto problem = [this] {
    const absl::Status status = ReadRunOverview(folder_).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
    return std::string(status.message());
  };
  Write("evaluation/before.json", "{");
  EXPECT_THAT(problem(), HasSubstr("before.json"));
  for (const char* line : {"[]\n", "{\"loss\": 1}\n"}) {
    Write("metrics.jsonl", line);
    EXPECT_THAT(problem(), HasSubstr("metrics.jsonl"));
  }
  Write("config.yaml", "a: [");
  EXPECT_THAT(problem(), HasSubstr("config.yaml"));
  Write("config.yaml", "just a text");
  EXPECT_THAT(problem(), HasSubstr("config.yaml"));
  for (const char* name : {"/config.yaml", "/metrics.jsonl"}) {
    std::filesystem::remove(folder_ + name);
    EXPECT_THAT(problem(), HasSubstr("holds no run"));
  }
}

TEST(OutcomeOfTest, AMessageOfAnyLengthIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "ä";
  const RunOutcome outcome = OutcomeOf(absl::InternalError("x" + text));
  EXPECT_EQ(outcome.state, "failed");
  EXPECT_LT(outcome.message.size(), 4200u);
  EXPECT_THAT(outcome.message, HasSubstr("ä ..."));
  EXPECT_EQ(OutcomeOf(absl::OkStatus()).state, "finished");
}

}  // namespace
}  // namespace dapd
