#include "common/data/expected_answer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

Dataset MakeData() {
  Dataset data;
  data.problems = {{"a", "?", "two", "2", "rows.jsonl:1"},
                   {"b", "?", "so \\boxed{3}", "", "rows.jsonl:2"},
                   {"c", "?", "three", "", "rows.jsonl:3"}};
  data.digest = DigestOf(data.problems);
  return data;
}

Config MakeConfig(ReferenceSource source) {
  Config config;
  config.data.path = "rows.jsonl";
  config.rollout.source = source;
  return config;
}

TEST(ExpectedAnswerTest, IsTheColumnOrTheSolutionsBox) {
  const Dataset data = MakeData();
  EXPECT_EQ(ExpectedAnswer(data.problems[0]), "2");
  EXPECT_EQ(ExpectedAnswer(data.problems[1]), "3");
  EXPECT_EQ(ExpectedAnswer(data.problems[2]), "");
}

// This text is from a row of GSM8K.
constexpr char kWorked[] =
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April and May.\n"
    "#### 72";

TEST(ExpectedAnswerTest, IsTheResultThatWorkedTextStates) {
  EXPECT_EQ(ExpectedAnswer(kWorked, kWorked), "72");
  EXPECT_EQ(ExpectedAnswer("", kWorked), "72");
  EXPECT_EQ(ExpectedAnswer("6 * 200\r\n####  1,200 \r\n", ""), "1,200");
  EXPECT_EQ(ExpectedAnswer("#### -3", ""), "-3");
  EXPECT_EQ(ExpectedAnswer("So $x$ is $\\boxed{\\frac{1}{2}}$.", ""),
            "\\frac{1}{2}");
}

TEST(ExpectedAnswerTest, IsTheWholeWhereNothingIsStated) {
  EXPECT_EQ(ExpectedAnswer("72", kWorked), "72");
  for (const char* whole : {"####72", "#### 72\nor so", "\\boxed{}", "####"}) {
    EXPECT_EQ(ExpectedAnswer(whole, "\\boxed{1}"), whole);
  }
  EXPECT_EQ(ExpectedAnswer(" \n", "so \\boxed{1}"), "1");
}

std::string WarningAbout(const std::vector<std::string>& answers) {
  Dataset data;
  for (const std::string& answer : answers) {
    data.problems.push_back(
        {"a", "?", "so \\boxed{1}", answer, "rows.jsonl:7"});
  }
  testing::internal::CaptureStderr();
  WarnOfBadAnswers("rows.jsonl", "data.answer_column", data);
  return testing::internal::GetCapturedStderr();
}

TEST(LongAnswersTest, TheColumnThatHoldsTextInPlaceOfAnswersIsNamed) {
  const std::string text = "She sold 24 in May.\nThat makes 72.";
  const std::string warning = WarningAbout({"72", text, text});
  EXPECT_THAT(warning, HasSubstr("2 of 3 expected answers are whole texts"));
  EXPECT_THAT(warning, HasSubstr("rows.jsonl:7"));
  EXPECT_THAT(warning, HasSubstr("data.answer_column"));
  EXPECT_THAT(WarningAbout({std::string(101, 'x')}), HasSubstr("1 of 1"));
  EXPECT_EQ(WarningAbout({"72", text}), "");
  EXPECT_EQ(WarningAbout({kWorked, "", "\\frac{1}{2}\n"}), "");
}

TEST(UngradedProblemsTest, AreNamedWithWhatTheyMeanForTheAccuracy) {
  Config config;
  config.evaluation.path = "held_out.jsonl";
  config.evaluation.interval = 10;
  Dataset held_out = MakeData();
  const auto warning = [&] {
    testing::internal::CaptureStderr();
    WarnOfUngradedProblems(config, held_out);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning(),
              HasSubstr("1 of 3 held-out problems have no expected"));
  EXPECT_THAT(warning(), HasSubstr("rows.jsonl:3; the accuracy is over the"));
  held_out.problems = {MakeData().problems[2]};
  EXPECT_THAT(warning(), HasSubstr("will have no accuracy, and no adapter-be"));
  held_out.problems = {MakeData().problems[0]};
  EXPECT_EQ(warning(), "");
}

TEST(AnswerRuleTest, GradesMatterOnlyWhereTheResultDependsOnThem) {
  EXPECT_FALSE(DependsOnGrades(MakeConfig(ReferenceSource::kGiven)));
  EXPECT_FALSE(DependsOnGrades(MakeConfig(ReferenceSource::kDual)));
  EXPECT_TRUE(DependsOnGrades(MakeConfig(ReferenceSource::kVerified)));
  Config sdpo = MakeConfig(ReferenceSource::kGiven);
  sdpo.objective.preset = "sdpo";
  EXPECT_TRUE(DependsOnGrades(sdpo));

  Dataset data = MakeData();
  EXPECT_TRUE(ApplyAnswerRule(MakeConfig(ReferenceSource::kDual), &data).ok());
  EXPECT_EQ(data.problems.size(), 3u);
}

TEST(AnswerRuleTest, ARowWithNothingToGradeAgainstIsNamed) {
  Dataset data = MakeData();
  const absl::Status status =
      ApplyAnswerRule(MakeConfig(ReferenceSource::kVerified), &data);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 3 rows"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows.jsonl:3"));
}

TEST(AnswerRuleTest, OrLeftOutWhereThatIsAskedFor) {
  Dataset data = MakeData();
  const std::string before = data.digest;
  Config config = MakeConfig(ReferenceSource::kVerified);
  config.data.on_bad_row = OnBadRow::kSkip;
  ASSERT_TRUE(ApplyAnswerRule(config, &data).ok());
  EXPECT_EQ(data.problems.size(), 2u);
  EXPECT_EQ(data.skipped_rows, 1);
  EXPECT_NE(data.digest, before);
  data.problems = {MakeData().problems[2]};
  EXPECT_FALSE(ApplyAnswerRule(config, &data).ok()) << "nothing would be left";
}

}  // namespace
}  // namespace dapd
