// Tests the supervisor of math-verify with programs that misbehave;
// tests/oracle/test_grading.py tests math-verify itself.
#include "services/cli/math_verify_grader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Returns a shell program that reports that it is ready, then runs `each` for
// every line.
MathVerifyOptions Shell(const std::string& each) {
  return {.command = {"sh",
                      "-c",
                      "echo '{\"ready\": \"0\"}'; while read -r line; do " +
                          each + "; done"},
          .start_timeout = absl::Seconds(30),
          .answer_timeout = absl::Seconds(30),
          .restarts = 2};
}

constexpr char kRight[] = "echo '{\"extracted\": \"4\", \"correct\": true}'";

TEST(MathVerifyGraderTest, AnAnswerIsPassedOn) {
  const auto grader = StartMathVerify(Shell(kRight));
  ASSERT_TRUE(grader.ok()) << grader.status();
  const auto graded = (*grader)->GradeText("\\boxed{4}", "4");
  ASSERT_TRUE(graded.ok()) << graded.status();
  EXPECT_TRUE(graded->correct);
  EXPECT_EQ(graded->extracted, "4");
  EXPECT_EQ(graded->error, "");
}

TEST(MathVerifyGraderTest, OneThatDiesCostsThatAnswerAndIsStartedAgain) {
  const auto grader = StartMathVerify(Shell(
      std::string("case \"$line\" in *poison*) exit 7;; esac; ") + kRight));
  ASSERT_TRUE(grader.ok()) << grader.status();
  const auto lost = (*grader)->GradeText("poison", "4");
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_FALSE(lost->correct);
  EXPECT_THAT(lost->error, HasSubstr("exit code 7"));
  const auto next = (*grader)->GradeText("4", "4");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->correct);
}

TEST(MathVerifyGraderTest, OneThatHangsCostsThatAnswer) {
  MathVerifyOptions options = Shell(
      std::string("case \"$line\" in *slow*) sleep 1000;; esac; ") + kRight);
  options.answer_timeout = absl::Milliseconds(200);
  const auto grader = StartMathVerify(options);
  ASSERT_TRUE(grader.ok()) << grader.status();
  const auto late = (*grader)->GradeText("slow", "4");
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_THAT(late->error, HasSubstr("no grade within 200ms"));
}

TEST(MathVerifyGraderTest, NonsenseIsAnErrorOfThatAnswer) {
  const auto grader = StartMathVerify(Shell("echo '[1, 2]'"));
  ASSERT_TRUE(grader.ok()) << grader.status();
  const auto graded = (*grader)->GradeText("x", "4");
  ASSERT_TRUE(graded.ok()) << graded.status();
  EXPECT_THAT(graded->error, HasSubstr("answered: [1, 2]"));
}

TEST(MathVerifyGraderTest, AfterTooManyRestartsItGivesUp) {
  const auto grader = StartMathVerify(Shell("exit 1"));
  ASSERT_TRUE(grader.ok()) << grader.status();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE((*grader)->GradeText("x", "4").ok());
  }
  const auto over = (*grader)->GradeText("x", "4");
  EXPECT_TRUE(absl::IsUnavailable(over.status())) << over.status();
  EXPECT_THAT(std::string(over.status().message()),
              HasSubstr("died or hung 3 times"));
}

TEST(MathVerifyGraderTest, APythonWithoutTheLibraryIsRefused) {
  MathVerifyOptions options;
  options.command = {"sh", "-c", "echo '{\"error\": \"No module\"}'"};
  const auto grader = StartMathVerify(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(grader.status())) << grader.status();
  options.command = {"/no/such/python"};
  EXPECT_TRUE(absl::IsUnavailable(StartMathVerify(options).status()));
}

}  // namespace
}  // namespace dapd
