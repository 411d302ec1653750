#include "services/cli/compare/run_results.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

class ReadRunResultsTest : public ::testing::Test {
 protected:
  ReadRunResultsTest() : folder_(TempPath("runs") + "/first") {}
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_ + "/evaluation").ok());
    Write("config.yaml",
          "run:\n  seed: 3  # --set\ntrainer:\n  steps: 2  # file:4\n"
          "lora:\n  targets: [\"q_proj\", \"k_proj\"]  # default\n");
    Write("metrics.jsonl",
          Step(1, "0.5") + Step(2, "0.25") + "{\"step\": 3, \"lo");
    Write("evaluation/before.json",
          "{\"problems\": 8, \"samples\": 2, \"accuracy\": {\"mean\": 0.5, "
          "\"low\": 0.25, \"high\": 0.75}, \"unclipped_divergence\": {\"a\": "
          "{\"mean\": 1, \"low\": 1, \"high\": 1}}, \"mean_tokens\": 4}");
    Write("evaluation/after.json", "{}");
  }
  static std::string Step(int step, const std::string& loss) {
    return absl::StrCat(
        "{\"step\": ", step, ", \"loss\": ", loss, ", \"seconds\": {}}\n");
  }
  void Write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(folder_ + "/" + name, text).ok());
  }
  std::string Problem() const {
    const absl::Status status = ReadRunResults(folder_).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
    return std::string(status.message());
  }

  const std::string folder_;
};

TEST_F(ReadRunResultsTest, NoPathIsAnErrorLikeAnyOtherThatHoldsNoRun) {
  const absl::Status status = ReadRunResults("").status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
}

TEST_F(ReadRunResultsTest, SettingsStepsAndFiguresAreThere) {
  const auto run = ReadRunResults(folder_ + "/");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->name, "first");
  EXPECT_EQ(run->settings.at("run.seed"), "3");
  EXPECT_THAT(run->settings.at("lora.targets"), HasSubstr("k_proj"));
  EXPECT_EQ(run->step, 2);
  EXPECT_EQ(run->steps, 2);
  EXPECT_EQ(run->history["series"]["loss"].size(), 2u);
  EXPECT_EQ(run->before.problems, 8);
  ASSERT_EQ(run->before.figures.size(), 2u);
  EXPECT_EQ(run->before.figures.at("unclipped_divergence/a").mean, 1.0);
  EXPECT_FALSE(run->finished);
}

TEST_F(ReadRunResultsTest, WhereATeachersWorkersListenIsNoSetting) {
  const auto settings = [&](const std::string& port, const std::string& path) {
    Write("config.yaml",
          absl::StrCat("trainer: {steps: 2}\nteachers: [{name: big, path: ",
                       path,
                       ", addresses: [\"127.0.0.1:",
                       port,
                       "\"], listen: \"127.0.0.1:",
                       port,
                       "\", metrics_listen: \"\"}]\n"));
    return ReadRunResults(folder_).value().settings;
  };
  EXPECT_EQ(settings("7011", "a"), settings("7012", "a"));
  EXPECT_NE(settings("7011", "a"), settings("7011", "b"));
}

TEST_F(ReadRunResultsTest, TheLossIsThatOfTheLastStepHoweverLongTheRun) {
  EXPECT_EQ(ReadRunResults(folder_)->loss, 0.25);
  std::string lines;
  for (int step = 1; step <= 1999; ++step) {
    absl::StrAppend(&lines, Step(step, absl::StrCat(step)));
  }
  Write("metrics.jsonl", lines + Step(2000, "0.5"));
  const auto run = ReadRunResults(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->loss, 0.5);
  EXPECT_EQ(run->history["stride"], 2) << "of which a point is a mean";
  Write("metrics.jsonl", lines + Step(2000, "null"));
  EXPECT_FALSE(ReadRunResults(folder_)->loss.has_value()) << "not finite";
}

TEST_F(ReadRunResultsTest, ARunIsFinishedOnceItsSummaryHasAllItsSteps) {
  Write("summary.json", "{\"steps\": 1}");
  EXPECT_FALSE(ReadRunResults(folder_)->finished);
  Write("summary.json", "{\"steps\": 2}");
  EXPECT_TRUE(ReadRunResults(folder_)->finished);
}

// The run got other held-out problems after its first step.
TEST_F(ReadRunResultsTest, WhatMeasuredSomethingElseThanTheNewestIsLeftOut) {
  const auto write =
      [&](const std::string& when, int step, const std::string& digest) {
        Write("evaluation/" + when + ".json",
              absl::StrCat("{\"policy_version\": ",
                           step,
                           ", \"held_out_digest\": \"",
                           digest,
                           "\", \"accuracy\": {\"mean\": 0.5, \"low\": 0, "
                           "\"high\": 1}}"));
      };
  write("before", 0, "first");
  write("step-000001", 1, "first");
  write("step-000002", 2, "second");
  write("after", 2, "second");
  Write("summary.json", "{\"steps\": 2}");
  auto run = ReadRunResults(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->before.figures.empty());
  EXPECT_FALSE(run->after.figures.empty());
  EXPECT_THAT(run->evaluations, ElementsAre(Key(2)));
  write("before", 0, "second");
  run = ReadRunResults(folder_);
  EXPECT_FALSE(run->before.figures.empty());
  EXPECT_THAT(run->evaluations, ElementsAre(Key(0), Key(2)));
}

TEST_F(ReadRunResultsTest, EvaluationsWithinItAreThereUpToItsLastStep) {
  const auto write = [&](const std::string& when, int step, double rate) {
    Write("evaluation/" + when + ".json",
          absl::StrCat("{\"policy_version\": ",
                       step,
                       ", \"marker\": \" = \", \"marker_rate\": {\"mean\": ",
                       rate,
                       ", \"low\": 0, \"high\": 1}}"));
  };
  write("before", 0, 0.25);
  write("step-000001", 1, 0.5);
  write("step-000009", 9, 0.75);  // by an attempt that went further
  write("after", 2, 1);
  Write("evaluation/step-000001.json.tmp", "{");
  const auto unfinished = ReadRunResults(folder_);
  ASSERT_TRUE(unfinished.ok()) << unfinished.status();
  EXPECT_THAT(unfinished->evaluations, ElementsAre(Key(0), Key(1)));
  Write("summary.json", "{\"steps\": 2}");
  const auto run = ReadRunResults(folder_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->evaluations, ElementsAre(Key(0), Key(1), Key(2)));
  EXPECT_EQ(run->after.marker, " = ");
  EXPECT_EQ(run->evaluations.at(1).figures.at("marker_rate").mean, 0.5);
}

TEST_F(ReadRunResultsTest, WhatIsDamagedIsLeftOut) {
  Write("evaluation/before.json", "{");
  Write("evaluation/step-000001.json", "{\"policy_version\": 1}");
  Write("evaluation/step-000002.json", std::string(100, '\0'));
  Write("metrics.jsonl", Step(1, "1") + "[]\n{\"st\n" + Step(2, "0.25"));
  testing::internal::CaptureStderr();
  const auto run = ReadRunResults(folder_);
  const std::string told = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->before.figures.empty());
  EXPECT_THAT(run->evaluations, ElementsAre(Key(1)));
  EXPECT_EQ(run->history["series"]["loss"].size(), 2u);
  EXPECT_EQ(run->loss, 0.25);
  EXPECT_THAT(told,
              AllOf(HasSubstr("evaluation/before.json"),
                    HasSubstr("evaluation/step-000002.json"),
                    HasSubstr("metrics.jsonl:2")));
}

// Its files can be read but not listed.
TEST_F(ReadRunResultsTest, AFolderThatCannotBeListedIsNotTakenForAnEmptyOne) {
  const std::string evaluations = folder_ + "/evaluation";
  const ClosedPath closed(evaluations, 0311);
  EXPECT_THAT(Problem(), HasSubstr(evaluations + ": Permission denied"));
}

TEST_F(ReadRunResultsTest, WhatIsNoRunIsSaid) {
  Write("config.yaml", "a: [");
  EXPECT_THAT(Problem(), HasSubstr("config.yaml"));
  Write("config.yaml", "a: 1");
  EXPECT_THAT(Problem(), HasSubstr("no trainer.steps"));
  std::filesystem::remove(folder_ + "/config.yaml");
  EXPECT_THAT(Problem(), HasSubstr("holds no run"));
}

}  // namespace
}  // namespace dapd
