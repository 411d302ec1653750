#include "services/cli/runs_text.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class RunsTextTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    const std::string path = JoinPath(folder_, name);
    ASSERT_TRUE(
        MakeDirectories(std::filesystem::path(path).parent_path()).ok());
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  std::string Text() const {
    const auto runs = ListRuns(folder_);
    EXPECT_TRUE(runs.ok()) << runs.status();
    return RunsText(*runs, folder_, absl::Now());
  }

  const std::string folder_ = TempPath("runs");
};

TEST_F(RunsTextTest, RunsSweepsAndDamagedFoldersAreLines) {
  Write("b/config.yaml", "trainer: {steps: 9}\n");
  Write("b/metrics.jsonl", "{\"step\": 4, \"loss\": 0.5}\n");
  Write("sweep/a/config.yaml", "trainer: {steps: 3}\n");
  Write("torn/metrics.jsonl", "{\"step\": 1}\n");
  Write("logs/a.log", "no run");
  const auto runs = ListRuns(folder_);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_THAT(*runs, SizeIs(3));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("b        interrupted  4 of 9  0.5"));
  EXPECT_THAT(text, HasSubstr("sweep/a  interrupted  0 of 3  -"));
  EXPECT_THAT(text, HasSubstr("torn     damaged\n    "));
  EXPECT_THAT(text, HasSubstr("holds no run"));
  EXPECT_THAT(text, Not(HasSubstr("logs")));
  const auto json = RunsJson(*runs, folder_);
  EXPECT_EQ(json[0]["step"], 4);
  EXPECT_EQ(json[0]["accuracy_before"], nullptr);
  EXPECT_EQ(json[1]["name"], "sweep/a");
  EXPECT_EQ(json[2]["state"], "damaged");
}

TEST_F(RunsTextTest, AFailedRunSaysWhyAndNothingIsATerminalsCommand) {
  Write("a\x1b[2J/config.yaml", "trainer: {steps: 9}\n");
  Write("a\x1b[2J/outcome.json",
        "{\"state\": \"failed\", \"exit_code\": 5, \"time\": 1, "
        "\"message\": \"no worker\\u001b[1m\\n  for 300s\"}");
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("failed"));
  EXPECT_THAT(text, HasSubstr("no worker"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(RunsTextTest, ARunThatEndedBeforeItBeganIsALine) {
  Write("early/outcome.json",
        "{\"state\": \"failed\", \"exit_code\": 4, \"time\": 1, "
        "\"message\": \"no data\"}");
  EXPECT_THAT(Text(), HasSubstr("early  failed  -     -"));
  EXPECT_THAT(Text(), HasSubstr("\n    no data\n"));
  const auto json = RunsJson(*ListRuns(folder_), folder_);
  EXPECT_EQ(json[0]["state"], "failed");
  EXPECT_EQ(json[0]["steps"], nullptr);
}

TEST_F(RunsTextTest, OneRunIsAListOfItself) {
  Write("one/config.yaml", "trainer: {steps: 9}\n");
  const auto runs = ListRuns(JoinPath(folder_, "one"));
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_THAT(*runs, SizeIs(1));
  EXPECT_EQ(RunsJson(*runs, JoinPath(folder_, "one"))[0]["name"], "one");
}

// The lost+found folder of a volume belongs to root, for example.
TEST_F(RunsTextTest, FoldersOfSomebodyElseAreLeftOut) {
  Write("a/config.yaml", "trainer: {steps: 9}\n");
  const std::string other = JoinPath(folder_, "lost+found");
  ASSERT_TRUE(MakeDirectories(other).ok());
  const ClosedPath closed(other);
  const auto runs = ListRuns(folder_);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_THAT(*runs, SizeIs(1));
  EXPECT_EQ((*runs)[0].folder, JoinPath(folder_, "a"));
}

TEST_F(RunsTextTest, AFolderBehindSomebodyElsesIsNotCalledNone) {
  Write("a/config.yaml", "trainer: {steps: 9}\n");
  const ClosedPath closed(folder_);
  const absl::Status status = ListRuns(JoinPath(folder_, "a")).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST_F(RunsTextTest, AFolderThatIsNoneIsAnError) {
  EXPECT_EQ(ExitCodeOf(ListRuns(folder_).status()), ExitCode::kData);
}

TEST(RunsRowTest, EachFigureStandsAtItsPlace) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  const std::vector<ListedRun> runs = {
      {"runs/a",
       RunOverview{.state = RunState::kFinished,
                   .step = 4,
                   .steps = 9,
                   .loss = 0.5,
                   .adapter_digest = "0123456789abcdef",
                   .before = EvaluationReport{.accuracy = Interval{0.25, 0, 1}},
                   .after = EvaluationReport{.accuracy = Interval{0.75, 0, 1}},
                   .last_written = now - absl::Seconds(60)}}};
  EXPECT_THAT(
      RunsText(runs, "runs", now),
      HasSubstr("\na    finished  4 of 9  0.5   25.0%   75.0%  60s ago  "
                "0123456789ab\n"));
  const auto row = RunsJson(runs, "runs")[0];
  EXPECT_EQ(row["step"], 4);
  EXPECT_EQ(row["steps"], 9);
  EXPECT_EQ(row["accuracy_before"]["mean"], 0.25);
  EXPECT_EQ(row["accuracy_after"]["mean"], 0.75);
  EXPECT_EQ(row["last_written"], "2001-09-09T01:45:40Z");
  EXPECT_EQ(row["adapter_digest"], "0123456789abcdef");
}

TEST(RunsRowTest, ARunThatIsPausedSaysWhy) {
  const std::vector<ListedRun> runs = {
      {"runs/a", RunOverview{.state = RunState::kPaused, .steps = 9}}};
  EXPECT_THAT(RunsText(runs, "runs", absl::Now()),
              HasSubstr("\n    its disk takes no more"));
  const auto row = RunsJson(runs, "runs")[0];
  EXPECT_EQ(row["state"], "paused");
  EXPECT_THAT(row["message"].get<std::string>(), HasSubstr("once there is"));
}

TEST(RunsRowTest, AnAgeIsInTheUnitThatSuitsIt) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  for (const auto& [age, text] : {std::pair{-absl::Seconds(5), "0s"},
                                  {absl::Seconds(119), "119s"},
                                  {absl::Minutes(2), "2min"},
                                  {absl::Minutes(119), "119min"},
                                  {absl::Hours(2), "2h"},
                                  {absl::Hours(47), "47h"},
                                  {absl::Hours(48), "2d"}}) {
    const std::vector<ListedRun> runs = {
        {"runs/a", RunOverview{.last_written = now - age}}};
    EXPECT_THAT(RunsText(runs, "runs", now),
                HasSubstr(absl::StrCat(" ", text, " ago ")));
  }
}

}  // namespace
}  // namespace dapd
