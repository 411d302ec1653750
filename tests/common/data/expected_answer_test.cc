#include "common/data/expected_answer.h"

#include <string>

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

Config MakeConfig(const char* source) {
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

TEST(AnswerRuleTest, GradesMatterOnlyWhereTheResultDependsOnThem) {
  EXPECT_FALSE(DependsOnGrades(MakeConfig("reference")));
  EXPECT_FALSE(DependsOnGrades(MakeConfig("dual")));
  EXPECT_TRUE(DependsOnGrades(MakeConfig("verified")));
  Config sdpo = MakeConfig("reference");
  sdpo.objective.preset = "sdpo";
  EXPECT_TRUE(DependsOnGrades(sdpo));

  Dataset data = MakeData();
  EXPECT_TRUE(ApplyAnswerRule(MakeConfig("dual"), &data).ok());
  EXPECT_EQ(data.problems.size(), 3u);
}

TEST(AnswerRuleTest, ARowWithNothingToGradeAgainstIsNamed) {
  Dataset data = MakeData();
  const absl::Status status = ApplyAnswerRule(MakeConfig("verified"), &data);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 3 rows"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows.jsonl:3"));
}

TEST(AnswerRuleTest, OrLeftOutWhereThatIsAskedFor) {
  Dataset data = MakeData();
  const std::string before = data.digest;
  Config config = MakeConfig("verified");
  config.data.on_bad_row = "skip";
  ASSERT_TRUE(ApplyAnswerRule(config, &data).ok());
  EXPECT_EQ(data.problems.size(), 2u);
  EXPECT_EQ(data.skipped_rows, 1);
  EXPECT_NE(data.digest, before);
  data.problems = {MakeData().problems[2]};
  EXPECT_FALSE(ApplyAnswerRule(config, &data).ok()) << "nothing would be left";
}

}  // namespace
}  // namespace dapd
