#include "services/cli/answers_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ShownAnswer Answer(const std::string& text, AnswerGrade grade) {
  return {.id = "12",
          .problem = "How many?",
          .text = text,
          .expected = "42",
          .extracted = grade == AnswerGrade::kRight ? "42" : "",
          .grade = grade,
          .tokens = 7};
}

AnswersToShow Held() {
  return {.before = 0,
          .after = 60,
          .held_out = {{Answer("I cannot\nsay.", AnswerGrade::kNoAnswer),
                        Answer("\\boxed{42}", AnswerGrade::kRight)},
                       {Answer("Hm.", AnswerGrade::kCut),
                        Answer("second", AnswerGrade::kWrong)}}};
}

TEST(AnswersTextTest, BeforeStandsBesideAfter) {
  EXPECT_EQ(HeldOutText(Held(), {.count = 1, .width = 41}),
            "held-out answers, 1 of 2 kept; 1 became right, 0 became wrong, "
            "these first\n"
            "\n"
            "problem 12: How many?\n"
            "expected: 42\n"
            "\n"
            "before training     | after step 60\n"
            "no answer, 7 tokens | right: 42, 7 tokens\n"
            "                    |\n"
            "I cannot            | \\boxed{42}\n"
            "say.                |\n");
  const std::string both = HeldOutText(Held(), {.count = 5, .width = 41});
  EXPECT_THAT(both, HasSubstr("2 of 2"));
  EXPECT_THAT(both, HasSubstr("cut off, 7 tokens   | wrong, 7 tokens\n"));
}

TEST(AnswersTextTest, WhatChangedComesFirst) {
  const auto pair = [](const std::string& text, bool before, bool after) {
    const auto grade = [](bool right) {
      return right ? AnswerGrade::kRight : AnswerGrade::kWrong;
    };
    return AnswerPair{Answer(text, grade(before)), Answer(text, grade(after))};
  };
  const AnswersToShow answers = {.before = 0,
                                 .after = 9,
                                 .held_out = {pair("alpha", true, true),
                                              pair("beta", true, false),
                                              pair("gamma", false, false),
                                              pair("delta", false, true)}};
  const std::string text = HeldOutText(answers, {.count = 3});
  EXPECT_THAT(text, HasSubstr("3 of 4 kept; 1 became right, 1 became wrong"));
  EXPECT_LT(text.find("beta"), text.find("delta"));
  EXPECT_LT(text.find("delta"), text.find("alpha"));
  EXPECT_THAT(text, Not(HasSubstr("gamma")));
}

TEST(AnswersTextTest, WithoutALaterEvaluationThereIsOneColumn) {
  AnswersToShow answers = Held();
  answers.after.reset();
  for (AnswerPair& pair : answers.held_out) pair.after.reset();
  const std::string text = HeldOutText(answers, {.count = 1});
  EXPECT_THAT(text, HasSubstr("before training\nno answer, 7 tokens\n"));
  EXPECT_THAT(text, HasSubstr("I cannot\nsay.\n"));
  EXPECT_THAT(text, Not(HasSubstr("|")));
}

TEST(AnswersTextTest, AProblemThatOneEvaluationLacksIsShownAllTheSame) {
  AnswersToShow answers = Held();
  answers.held_out[0].before.reset();
  EXPECT_THAT(HeldOutText(answers, {.count = 1, .width = 41}),
              HasSubstr("no answer kept      | right: 42, 7 tokens\n"));
}

TEST(AnswersTextTest, AStepsAnswersStandBelowEachOther) {
  const std::string text =
      StepText({.step = 9,
                .answers = {Answer("first", AnswerGrade::kRight),
                            Answer("second", AnswerGrade::kUngraded)}},
               {});
  EXPECT_THAT(text, HasSubstr("answers of step 9\n"));
  EXPECT_THAT(text, HasSubstr("right: 42, 7 tokens\n\nfirst\n"));
  EXPECT_THAT(text, HasSubstr("not graded, 7 tokens\n\nsecond\n"));
}

TEST(AnswersTextTest, ALongAnswerLosesItsMiddleUnlessItIsWantedWhole) {
  const StepAnswers answers = {
      .step = 1,
      .answers = {Answer(std::string(4000, 'x'), AnswerGrade::kWrong)}};
  EXPECT_THAT(StepText(answers, {}), HasSubstr("characters left out ...]"));
  EXPECT_THAT(StepText(answers, {.is_whole = true}),
              Not(HasSubstr("left out")));
}

TEST(AnswersTextTest, WhatATerminalWouldObeyIsEscapedEverywhere) {
  ShownAnswer hostile = Answer("\x1b[2J\xff", AnswerGrade::kWrong);
  hostile.id = hostile.problem = hostile.expected = hostile.extracted =
      "\x1b[2J\r\xc2\x9b";
  AnswersToShow answers = Held();
  answers.held_out = {{hostile, hostile}};
  for (const std::string& text :
       {HeldOutText(answers, {}),
        StepText({.step = 1, .answers = {hostile}}, {})}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\xff")));
    EXPECT_THAT(text, Not(HasSubstr("\r")));
    EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));
    EXPECT_THAT(text, HasSubstr("\\x1b[2J"));
  }
}

}  // namespace
}  // namespace dapd
