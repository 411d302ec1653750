// Tests the limits on the cost of grading, for any answer.

#include <string>

#include "gtest/gtest.h"

#include "common/data/grade_answer.h"

namespace dapd {
namespace {

TEST(AnswersEqualTest, HostileTextNeitherCrashesNorHangs) {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const std::string& text : {repeated("{", 4000),
                                  repeated("(", 2000) + repeated(")", 2000),
                                  repeated("\\frac{", 600),
                                  repeated("\\text{", 600),
                                  repeated("1,", 2000) + "1",
                                  repeated("\\pm", 1000) + "1",
                                  repeated("9^", 2000) + "9",
                                  repeated("9!", 2000),
                                  repeated("2900!+", 680) + "1",
                                  repeated("9^{5000}/7^{5800},", 220) + "1",
                                  repeated("1", 1 << 20),
                                  std::string("\\text"),
                                  std::string("\\")}) {
    EXPECT_FALSE(AnswersEqual(text, "1"));
    EXPECT_TRUE(AnswersEqual(text, text));
  }
}

// Behind each number the parser looks for a mixed number.
TEST(AnswersEqualTest, AFactorThatIsAFractionIsReadOnce) {
  std::string nested = "400!x";
  for (int i = 0; i < 20; ++i) nested = "1\\frac{" + nested + "}{2}";
  EXPECT_TRUE(AnswersEqual(nested, "\\frac{400!x}{1048576}"));
  EXPECT_FALSE(AnswersEqual(nested, "x"));
  EXPECT_TRUE(AnswersEqual("3\\frac{x}{2}^2", "\\frac{3x^2}{4}"));
  EXPECT_TRUE(AnswersEqual("2\\frac{x}23", "3x"));
  EXPECT_TRUE(AnswersEqual("2\\frac{\\pm x}{2}+\\frac{1}{2}", "x+0.5, 0.5-x"));
  EXPECT_TRUE(AnswersEqual("|2\\frac{x}{2}|", "|x|"));
}

}  // namespace
}  // namespace dapd
