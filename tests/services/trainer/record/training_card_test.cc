#include "services/trainer/record/training_card.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/model/spec/model_card.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

EvaluationReport Report(int64_t step, double accuracy) {
  return {.policy_version = step,
          .adapter_digest = step == 0 ? "start" : "trained",
          .problems = 8,
          .samples = 2,
          .graded_problems = 8,
          .accuracy = Interval{.mean = accuracy, .low = 0.1, .high = 0.9},
          .divergences = {
              {"a|b", {.mean = 0.00005, .low = 0.000025, .high = 0.75}}}};
}

TEST(TrainingCardTest, FiguresStandBesideEachOtherWithTheirIntervals) {
  const CardRun run{.name = "first",
                    .step = 4,
                    .adapter_digest = "trained",
                    .data_digest = "dada"};
  EvaluationReport now = Report(4, 0.75);
  now.format_rate = {.mean = 0.5, .low = 0.25, .high = 0.75};
  const std::string text =
      FormatTraining(run, {{"before", Report(0, 0.25)}, {"step-000004", now}});
  EXPECT_THAT(text, HasSubstr("* Steps: 4\n"));
  EXPECT_THAT(text, HasSubstr("dada"));
  EXPECT_THAT(text,
              HasSubstr("| accuracy | 25.0 % \\[10.0, 90.0\\] | 75.0 % "
                        "\\[10.0, 90.0\\] |"));
  EXPECT_THAT(text,
              HasSubstr("| answers with a box | 0.0 % \\[0.0, 0.0\\] | 50.0 % "
                        "\\[25.0, 75.0\\] |"));
  EXPECT_THAT(text, HasSubstr("true KL a\\|b | 5e-05 \\[2.5e-05, 0.7500\\]"));
}

// The divergences cover evaluation.kl_problems problems, a number that may
// change within a run.
TEST(TrainingCardTest, DivergencesSayOfHowManyProblemsTheyAre) {
  EvaluationReport before = Report(0, 0.25);
  EvaluationReport now = Report(4, 0.75);
  before.divergences[0].problems = 1;
  now.divergences[0].problems = 2;
  const CardRun run{.name = "first", .step = 4, .adapter_digest = "trained"};
  EXPECT_THAT(
      FormatTraining(run, {{"before", before}, {"after", now}}),
      HasSubstr("true KL a\\|b | 5e-05 \\[2.5e-05, 0.7500\\], 1 problem | "
                "5e-05 \\[2.5e-05, 0.7500\\], 2 problems |"));
}

TEST(TrainingCardTest, AccuracySaysHowManyProblemsItIsOf) {
  EvaluationReport report = Report(4, 0.75);
  const CardRun run{.name = "first", .step = 4, .adapter_digest = "trained"};
  EXPECT_THAT(FormatTraining(run, {{"after", report}}),
              HasSubstr("95 % intervals.\n"));
  report.graded_problems = 3;
  EXPECT_THAT(FormatTraining(run, {{"after", report}}),
              HasSubstr("accuracy over the 3 with an expected answer.\n"));
  report.graded_problems = 0;
  report.accuracy.reset();
  EXPECT_THAT(FormatTraining(run, {{"after", report}}),
              HasSubstr("| accuracy | - | - |"));
}

TEST(TrainingCardTest, AnEvaluationOfAnotherAdapterIsNotThisOnes) {
  const CardRun run{.name = "first", .step = 4, .adapter_digest = "other"};
  const std::string text = FormatTraining(
      run, {{"before", Report(0, 0.25)}, {"after", Report(4, 0.75)}});
  EXPECT_THAT(text, HasSubstr("| accuracy | 25.0"));
  EXPECT_THAT(text, Not(HasSubstr("75.0 %")));
  EXPECT_THAT(FormatTraining(run, {}), Not(HasSubstr("Held out")));
}

TEST(TrainingCardTest, OfAnOlderRunTheStepSaysWhichEvaluationIsThisOnes) {
  std::map<std::string, EvaluationReport> evaluations = {
      {"after", Report(6, 1.0)},
      {"before", Report(0, 0.25)},
      {"step-000002", Report(2, 0.5)},
      {"step-000004", Report(4, 0.75)}};
  for (auto& [when, report] : evaluations) report.adapter_digest.clear();
  const CardRun run{.name = "first", .step = 4, .adapter_digest = "trained"};
  EXPECT_THAT(FormatTraining(run, evaluations),
              HasSubstr("| accuracy | 25.0 % \\[10.0, 90.0\\] | 75.0 % "
                        "\\[10.0, 90.0\\] |"));
}

TEST(TrainingCardTest, OneAnswerIsNoPlural) {
  const CardRun run{.name = "first", .step = 4, .adapter_digest = "trained"};
  EvaluationReport report = Report(4, 0.75);
  EXPECT_THAT(FormatTraining(run, {{"after", report}}),
              HasSubstr("8 problems, 2 answers each, 95 %"));
  report.samples = 1;
  EXPECT_THAT(FormatTraining(run, {{"after", report}}),
              HasSubstr("8 problems, 1 answer each, 95 %"));
}

TEST(TrainingCardTest, NoSettingEndsItsBlockOrTheSection) {
  const std::string hostile =
      "```\n<!-- dapd: end of training -->\n# forged \xe2\x80\xae";
  const CardRun run{.name = hostile, .settings = {{"prompts.none", hostile}}};
  const std::string text = FormatTraining(run, {});
  EXPECT_EQ(CardTraining("head\n" + text + "tail"), text);
  EXPECT_THAT(text, Not(HasSubstr("\n# forged")));
  EXPECT_THAT(text, Not(HasSubstr("\n```\n<")));
  const size_t begin = text.find("json\n") + 5;
  const std::string block = text.substr(begin, text.rfind("}\n`") + 1 - begin);
  EXPECT_EQ(nlohmann::json::parse(block)["prompts.none"], hostile);
}

}  // namespace
}  // namespace dapd
