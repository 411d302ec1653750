#include "services/trainer/record/choose_answers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

class ChooseAnswersTest : public testing::Test {
 protected:
  ChooseAnswersTest() {
    for (int i = 0; i < 20; ++i) {
      problems_.push_back({.id = absl::StrCat(i),
                           .problem = absl::StrCat("What is ", i, "?"),
                           .solution = absl::StrCat("\\boxed{", i, "}")});
    }
  }

  // Returns `samples` wrong answers to each problem.
  std::vector<RolloutRecord> Records(size_t samples) const {
    std::vector<RolloutRecord> records;
    for (const Problem& problem : problems_) {
      for (size_t k = 0; k < samples; ++k) {
        RolloutRecord& record = records.emplace_back();
        record.problem = &problem;
        record.answer.ids = {1, 2, 3};
        record.text = absl::StrCat("\\boxed{-", k, "}");
        record.grade.has_box = true;
        record.grade.extracted = absl::StrCat("-", k);
      }
    }
    return records;
  }

  static std::vector<std::string> Ids(const std::vector<ShownAnswer>& answers) {
    std::vector<std::string> ids;
    for (const ShownAnswer& answer : answers) ids.push_back(answer.id);
    return ids;
  }

  std::vector<Problem> problems_;
};

TEST_F(ChooseAnswersTest, AStepsAnswersAreSpreadOverItsBatch) {
  EXPECT_THAT(Ids(ChooseStepAnswers(Records(1))),
              ElementsAre("0", "5", "10", "15"));
  const std::vector<ShownAnswer> of_groups = ChooseStepAnswers(Records(8));
  EXPECT_THAT(Ids(of_groups), ElementsAre("0", "5", "10", "15"));
  EXPECT_EQ(of_groups[1].place, 40);
  EXPECT_EQ(of_groups[1].text, "\\boxed{-0}");
}

TEST_F(ChooseAnswersTest, AHeldOutProblemsFirstAnswerIsShown) {
  for (const size_t samples : {1u, 3u}) {
    const std::vector<ShownAnswer> answers =
        ChooseHeldOutAnswers(Records(samples), static_cast<int64_t>(samples));
    EXPECT_THAT(Ids(answers),
                ElementsAre("0", "2", "5", "7", "10", "12", "15", "17"));
    EXPECT_EQ(answers[2].place, 5);
    EXPECT_EQ(answers[2].text, "\\boxed{-0}");
  }
}

TEST_F(ChooseAnswersTest, AnAnswerComesWithItsProblemAndGrade) {
  std::vector<RolloutRecord> records = Records(1);
  const ShownAnswer expected = {.place = 0,
                                .id = "0",
                                .problem = "What is 0?",
                                .text = "\\boxed{-0}",
                                .expected = "0",
                                .extracted = "-0",
                                .grade = AnswerGrade::kWrong,
                                .tokens = 3};
  EXPECT_EQ(ChooseStepAnswers(records)[0], expected);
  records[0].grade.correct = true;
  EXPECT_EQ(ChooseStepAnswers(records)[0].grade, AnswerGrade::kRight);
  records[0].grade.correct = records[0].grade.has_box = false;
  records[0].answer.finish_reason = FinishReason::kLength;
  EXPECT_EQ(ChooseStepAnswers(records)[0].grade, AnswerGrade::kCut);
  problems_[0].solution = "";
  EXPECT_EQ(ChooseStepAnswers(records)[0].grade, AnswerGrade::kUngraded);
}

TEST_F(ChooseAnswersTest, WhereNoneIsSampledNoneIsShown) {
  std::vector<RolloutRecord> records = Records(1);
  for (RolloutRecord& record : records) record.answer.ids.clear();
  EXPECT_TRUE(ChooseStepAnswers(records).empty());
  EXPECT_TRUE(ChooseStepAnswers({}).empty());
}

}  // namespace
}  // namespace dapd
