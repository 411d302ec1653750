#include "services/cli/eval_report.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns three problems with four answers each: all right, one right, none
// right.
std::vector<AnswerRecord> Records() {
  std::vector<AnswerRecord> records;
  for (int64_t index = 0; index < 3; ++index) {
    for (int64_t sample = 0; sample < 4; ++sample) {
      records.push_back(
          {.index = index,
           .sample = sample,
           .grade = {.has_box = index < 2,
                     .correct = index == 0 || (index == 1 && sample == 2)},
           .tokens = 10 * (index + 1),
           .finish_reason = index == 2 && sample < 2 ? FinishReason::kLength
                                                     : FinishReason::kEos,
           .repeated = index == 2 && sample == 0,
           .is_marked = index != 1});
    }
  }
  return records;
}

TEST(EvalReportTest, EachProblemCountsOnce) {
  const EvalReport report =
      SummarizeAnswers({"a", "b", "c"}, 4, Records(), "", 1);
  EXPECT_DOUBLE_EQ(report.accuracy.mean, (1 + 0.25 + 0) / 3);
  EXPECT_DOUBLE_EQ(report.format_rate.mean, 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.truncated.mean, 0.5 / 3);
  EXPECT_DOUBLE_EQ(report.repeated.mean, 0.25 / 3);
  EXPECT_DOUBLE_EQ(report.tokens.mean, 20.0);
  EXPECT_EQ(report.problems[1].correct, 1);
}

// The answers hold only the end token: one token is a length, not a share.
TEST(EvalReportTest, AnswersOfOneTokenHaveThatLengthWithoutDoubt) {
  std::vector<AnswerRecord> records = Records();
  for (AnswerRecord& record : records) record.tokens = 1;
  const EvalReport report =
      SummarizeAnswers({"a", "b", "c"}, 4, records, "", 1);
  EXPECT_EQ(report.tokens.mean, 1.0);
  EXPECT_EQ(report.tokens.low, 1.0);
  EXPECT_EQ(report.tokens.high, 1.0);
}

TEST(EvalReportTest, PassAtOneIsTheAverageAndMoreAnswersPassMore) {
  const EvalReport report =
      SummarizeAnswers({"a", "b", "c"}, 4, Records(), "", 1);
  ASSERT_EQ(report.pass_at.size(), 4u);
  EXPECT_NEAR(report.pass_at[0].mean, report.accuracy.mean, 1e-12);
  // One of four answers is right: two of them include it with probability 1/2.
  EXPECT_NEAR(report.pass_at[1].mean, 1.5 / 3, 1e-12);
  EXPECT_NEAR(report.pass_at[3].mean, 2.0 / 3, 1e-12);
}

TEST(EvalReportTest, JsonHasTheMeasuresAndTextShowsThem) {
  const EvalReport report =
      SummarizeAnswers({"a", "b", "c"}, 4, Records(), "", 1);
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["problems"], 3);
  EXPECT_EQ(json["samples"], 4);
  EXPECT_EQ(json["mean_tokens"], 20.0);
  EXPECT_NEAR(json["accuracy"]["mean"].get<double>(), 1.25 / 3, 1e-12);
  EXPECT_NEAR(json["format_rate"]["mean"].get<double>(), 2.0 / 3, 1e-12);
  EXPECT_NEAR(json["truncated"]["mean"].get<double>(), 0.5 / 3, 1e-12);
  EXPECT_NEAR(json["repeated"]["mean"].get<double>(), 0.25 / 3, 1e-12);
  EXPECT_EQ(json["tokens"]["mean"], 20.0);
  EXPECT_EQ(json["pass_at"].size(), 4u);
  EXPECT_EQ(json["by_problem"][0]["correct"], 4);
  const std::string text = ToText(report);
  for (const char* row : {"3 problems x 4 answers; ",
                          "\nAvg@4   accuracy  41.67 % [",
                          "\npass@2            50.00 % [",
                          "\npass@4            66.67 % [",
                          "\nformat rate       66.67 % [",
                          "\ntruncated         16.67 % [",
                          "\nrepeated           8.33 % [",
                          "\nmean tokens        20.0 ["}) {
    EXPECT_THAT(text, HasSubstr(row));
  }
}

TEST(EvalReportTest, TheMarkersShareIsThereIfThereIsAMarker) {
  const EvalReport without =
      SummarizeAnswers({"a", "b", "c"}, 4, Records(), "", 1);
  EXPECT_FALSE(ToJson(without).contains("marker_rate"));
  EXPECT_THAT(ToText(without), Not(HasSubstr("with ")));
  const EvalReport report =
      SummarizeAnswers({"a", "b", "c"}, 4, Records(), " = ", 1);
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["marker"], " = ");
  EXPECT_NEAR(json["marker_rate"]["mean"].get<double>(), 2.0 / 3, 1e-12);
  EXPECT_LT(json["marker_rate"]["low"], json["marker_rate"]["mean"]);
  EXPECT_THAT(ToText(report), HasSubstr("with \" = \"        66.67 % ["));
}

}  // namespace
}  // namespace dapd
