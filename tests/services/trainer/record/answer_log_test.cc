#include "services/trainer/record/answer_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

StepAnswers Answers(int64_t step) {
  return {.step = step,
          .answers = {{.place = 2,
                       .id = "a",
                       .text = absl::StrCat("of step ", step),
                       .grade = AnswerGrade::kWrong,
                       .tokens = 7}}};
}

class AnswerLogTest : public testing::Test {
 protected:
  AnswerLogTest() : path_(TempPath("answers.jsonl")) {}

  // Writes these steps behind the first `last_step` steps.
  void Write(int64_t last_step, const std::vector<int64_t>& steps) const {
    auto log = AnswerLog::Open(path_, last_step);
    ASSERT_TRUE(log.ok()) << log.status();
    for (const int64_t step : steps) {
      ASSERT_TRUE(log->Append(Answers(step)).ok());
    }
  }
  std::string Content() const { return ReadFile(path_, 1 << 20).value(); }
  void Overwrite(const std::string& content) const {
    ASSERT_TRUE(WriteFileAtomically(path_, content).ok());
  }

  const std::string path_;
};

TEST_F(AnswerLogTest, AStepIsALine) {
  Write(0, {1, 2});
  EXPECT_EQ(Content(),
            R"({"step":1,"answers":[{"place":2,"id":"a","problem":"",)"
            R"("text":"of step 1","expected":"","extracted":"",)"
            R"("grade":"wrong","tokens":7}]})"
            "\n"
            R"({"step":2,"answers":[{"place":2,"id":"a","problem":"",)"
            R"("text":"of step 2","expected":"","extracted":"",)"
            R"("grade":"wrong","tokens":7}]})"
            "\n");
}

TEST_F(AnswerLogTest, AStepWithoutAnswersHasNone) {
  auto log = AnswerLog::Open(path_, 0);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_TRUE(log->Append({.step = 1}).ok());
  EXPECT_EQ(Content(), "");
  EXPECT_EQ(log->last().step, 0);
}

TEST_F(AnswerLogTest, AResumeDropsStepsThatAreDoneAgain) {
  Write(0, {1, 2, 3});
  const std::string whole = Content();
  Write(1, {2, 3});
  EXPECT_EQ(Content(), whole);
  const auto log = AnswerLog::Open(path_, 2);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->last().step, 2);
  EXPECT_EQ(log->last().answers, Answers(2).answers);
}

// A crash may cut the line off anywhere.
TEST_F(AnswerLogTest, AnUnfinishedLastLineIsDropped) {
  Write(0, {1});
  const std::string first = Content();
  Write(1, {2});
  const std::string whole = Content();
  for (size_t size = first.size(); size < whole.size(); ++size) {
    Overwrite(whole.substr(0, size));
    const auto read = ReadStepAnswers(path_, 0);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->step, 1);
    Write(2, {2});
    EXPECT_EQ(Content(), whole);
  }
  EXPECT_FALSE(FileExists(path_ + ".damaged"));
}

TEST_F(AnswerLogTest, ADamagedFileIsSetAsideAndTheRunGoesOn) {
  Write(0, {1, 2});
  const std::string whole = Content();
  const std::vector<std::string> damaged = {
      "no json\n" + whole,
      "[]\n" + whole,
      "{\"step\":0,\"answers\":[]}\n",
      "{\"step\":1,\"answers\":[{}]}\n",
      "{\"step\":1,\"answers\":\"\xff\"}\n",
      std::string(3 << 20, 'x') + "\n"};
  for (const std::string& content : damaged) {
    Overwrite(content);
    const absl::Status status = ReadStepAnswers(path_, 0).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("answers.jsonl:1"));
    Write(2, {3});
    EXPECT_EQ(ReadStepAnswers(path_, 0)->step, 3);
    EXPECT_EQ(ReadFile(path_ + ".damaged", 4 << 20).value(), content);
  }
}

TEST_F(AnswerLogTest, AStepIsFoundByItsNumber) {
  EXPECT_EQ(ReadStepAnswers(path_, 0)->step, 0) << "there is no file";
  Write(0, {1, 2, 5});
  EXPECT_EQ(ReadStepAnswers(path_, 0)->step, 5);
  EXPECT_EQ(ReadStepAnswers(path_, 2)->answers, Answers(2).answers);
  EXPECT_EQ(ReadStepAnswers(path_, 3)->step, 0);
}

TEST_F(AnswerLogTest, LinesOfOtherStepsAreNotParsed) {
  Write(0, {1, 2, 5});
  const std::string whole = Content();
  const size_t second = whole.find("{\"step\":2");
  const size_t third = whole.find("{\"step\":5");
  Overwrite(whole.substr(0, second) + "{\"step\":2,\"answers\":[{]}\n" +
            whole.substr(third));
  EXPECT_EQ(ReadStepAnswers(path_, 1)->answers, Answers(1).answers);
  EXPECT_EQ(ReadStepAnswers(path_, 5)->answers, Answers(5).answers);
  EXPECT_EQ(ReadStepAnswers(path_, 0)->step, 5);
  EXPECT_EQ(ReadStepAnswers(path_, 3)->step, 0);
  const absl::Status damaged = ReadStepAnswers(path_, 2).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("answers.jsonl:2"));
}

TEST_F(AnswerLogTest, AResumeParsesTheLastLineOnly) {
  Write(0, {1, 2, 5});
  const std::string whole = Content();
  const size_t second = whole.find("{\"step\":2");
  const size_t third = whole.find("{\"step\":5");
  const std::string first_unread =
      "{\"step\":1,\"answers\":[{]}\n" + whole.substr(second);
  Overwrite(first_unread);
  {
    const auto log = AnswerLog::Open(path_, 5);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_EQ(log->last().answers, Answers(5).answers);
  }
  EXPECT_EQ(Content(), first_unread);
  EXPECT_FALSE(FileExists(path_ + ".damaged"));
  // A file with an answer that cannot be shown is not continued.
  Overwrite(whole.substr(0, third) + "{\"step\":5,\"answers\":[{]}\n");
  EXPECT_TRUE(AnswerLog::Open(path_, 5).ok());
  EXPECT_TRUE(FileExists(path_ + ".damaged"));
}

TEST_F(AnswerLogTest, WhatStandsBehindTheStepIsNotRead) {
  Write(0, {1, 2});
  Overwrite(Content() + "no json\n");
  EXPECT_EQ(ReadStepAnswers(path_, 2)->answers, Answers(2).answers);
  EXPECT_TRUE(absl::IsDataLoss(ReadStepAnswers(path_, 0).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReadStepAnswers(path_, 3).status()));
}

TEST_F(AnswerLogTest, ALineThatAnotherProgramWroteIsReadAllTheSame) {
  Overwrite(
      "{\"step\": 7, \"answers\": []}\n"
      "{\"answers\":[],\"step\":8} \n"
      "{\"step\":9,\"answers\":[], \"more\":{}}\n");
  for (const int64_t step : {7, 8, 9}) {
    const auto read = ReadStepAnswers(path_, step);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->step, step);
  }
  EXPECT_EQ(ReadStepAnswers(path_, 0)->step, 9);
}

TEST_F(AnswerLogTest, AnUnwritableFileIsNamed) {
  const auto log = AnswerLog::Open(path_ + "/no/such", 0);
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("no/such"));
}

}  // namespace
}  // namespace dapd
