#include "services/trainer/record/run_answers.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Returns a report with one answer, to the problem "a".
EvaluationReport Evaluation(int64_t version, const std::string& text = "") {
  EvaluationReport report;
  report.policy_version = version;
  report.answers = {
      {.id = "a",
       .problem = "1 + 1?",
       .text = text.empty() ? absl::StrCat("of version ", version) : text}};
  return report;
}

TEST(RunAnswersTest, NothingIsShownBeforeThereIsAnything) {
  const nlohmann::ordered_json json = ToJson(RunAnswers().Get());
  EXPECT_EQ(json.dump(),
            R"({"step":0,"answers":[],"held_out":{"before":null,)"
            R"("after":null,"pairs":[]}})");
}

TEST(RunAnswersTest, TheNewestStepIsShown) {
  RunAnswers answers;
  answers.ShowStep({.step = 1, .answers = {{.text = "first"}}});
  answers.ShowStep({.step = 2, .answers = {{.text = "second"}}});
  const nlohmann::ordered_json json = ToJson(answers.Get());
  EXPECT_EQ(json["step"], 2);
  EXPECT_EQ(json["answers"].size(), 1u);
  EXPECT_EQ(json["answers"][0]["text"], "second");
}

TEST(RunAnswersTest, TheFirstEvaluationStandsBesideTheNewest) {
  RunAnswers answers;
  answers.ShowEvaluation(Evaluation(0));
  nlohmann::ordered_json held_out = ToJson(answers.Get())["held_out"];
  EXPECT_EQ(held_out["before"], 0);
  EXPECT_TRUE(held_out["after"].is_null());
  EXPECT_TRUE(held_out["pairs"][0]["after"].is_null());

  answers.ShowEvaluation(Evaluation(100));
  answers.ShowEvaluation(Evaluation(50));  // recalled in any order
  held_out = ToJson(answers.Get())["held_out"];
  EXPECT_EQ(held_out["after"], 100);
  ASSERT_EQ(held_out["pairs"].size(), 1u);
  EXPECT_EQ(held_out["pairs"][0]["before"]["text"], "of version 0");
  EXPECT_EQ(held_out["pairs"][0]["after"]["text"], "of version 100");

  answers.ShowEvaluation(Evaluation(100, "once more"));
  EXPECT_EQ(answers.Get().held_out[0].after->text, "once more");
}

TEST(RunAnswersTest, AnEvaluationOfAnEarlierVersionHasNoAnswersToShow) {
  RunAnswers answers;
  answers.ShowEvaluation({.policy_version = 0});
  answers.ShowEvaluation(Evaluation(50));
  EXPECT_EQ(answers.Get().before, 50);
  EXPECT_FALSE(answers.Get().after.has_value());
}

class RecallAnswersTest : public testing::Test {
 protected:
  RecallAnswersTest() : folder_(TempPath("run")) {
    EXPECT_TRUE(MakeDirectories(folder_ + "/evaluation").ok());
  }

  const std::string folder_;
};

TEST_F(RecallAnswersTest, AFolderHoldsWhatWasShown) {
  auto log = AnswerLog::Open(folder_ + "/answers.jsonl", 0);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE(log->Append({.step = 7, .answers = {{.text = "x"}}}).ok());
  const std::vector<std::pair<std::string, int64_t>> evaluations = {
      {"before", 0}, {"step-000005", 5}, {"after", 9}};
  for (const auto& [when, version] : evaluations) {
    const std::string path =
        absl::StrCat(folder_, "/evaluation/", when, ".json");
    ASSERT_TRUE(WriteEvaluationReport(path, Evaluation(version)).ok());
  }
  RunAnswers answers;
  ASSERT_TRUE(RecallAnswers(folder_, &answers).ok());
  const AnswersToShow shown = answers.Get();
  EXPECT_EQ(shown.step.step, 7);
  EXPECT_EQ(shown.before, 0);
  EXPECT_EQ(shown.after, 9);
  EXPECT_EQ(shown.held_out.at(0).after->text, "of version 9");
}

TEST_F(RecallAnswersTest, AnEmptyFolderHasNone) {
  RunAnswers answers;
  EXPECT_TRUE(RecallAnswers(folder_, &answers).ok());
  EXPECT_TRUE(RecallAnswers(folder_ + "/none", &answers).ok());
  EXPECT_EQ(answers.Get().step.step, 0);
}

TEST_F(RecallAnswersTest, ADamagedFileIsNamed) {
  const std::string path = folder_ + "/evaluation/before.json";
  ASSERT_TRUE(WriteEvaluationReport(path, Evaluation(0)).ok());
  std::string text = ReadFile(path, 1 << 20).value();
  text.replace(text.find("ungraded"), 8, "splendid");
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  RunAnswers answers;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(RecallAnswers(folder_, &answers).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("before.json"));
  const std::string lines = folder_ + "/answers.jsonl";
  ASSERT_TRUE(WriteFileAtomically(lines, "{}\n").ok());
  const absl::Status status = RecallAnswers(folder_, &answers);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("answers.jsonl"));
}

}  // namespace
}  // namespace dapd
