#include "common/data/grade_answer.h"

#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ExtractBoxedTest, TheLastBalancedBoxCounts) {
  EXPECT_EQ(ExtractBoxed("a \\boxed{1} b \\boxed{2}"), "2");
  EXPECT_EQ(ExtractBoxed("\\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(ExtractBoxed("\\boxed{1} then \\boxed{2"), "1");
  EXPECT_EQ(ExtractBoxed("no box {here}"), std::nullopt);
  EXPECT_EQ(ExtractBoxed("\\boxed{}"), "");
}

struct Case {
  std::string given, expected;
  bool equal;
};

TEST(AnswersEqualTest, NumbersCompareExactlyAndTextNormalised) {
  for (const Case& c : std::vector<Case>{
           {"3.50", "7/2", true},
           {"\\frac{7}{2}", "3.5", true},
           {"\\dfrac{1}{3}", "1/3", true},
           {"0.333333333333", "1/3", false},
           {"1,234,567", "1234567", true},
           {"12,34", "1234", false},
           {"-4", "4", false},
           {"- 4", "-4", true},
           {"-0", "0", true},
           {"5000 m", "5000", true},
           {"50\\%", "50", true},
           {"$42$", "42", true},
           {"12 \\text{ km}", "12", true},
           {"10000000000000000000000000001",
            "10000000000000000000000000000",
            false},
           {"1/0", "1/0", true},
           {"1/0", "2/0", false},
           {"Paris", " paris. ", true},
           {"x + 1", "x+1", true},
           {"", "", false},
           {"007", "7", true},
           {".5", "1/2", true},
       }) {
    EXPECT_EQ(AnswersEqual(c.given, c.expected), c.equal)
        << c.given << " vs " << c.expected;
    EXPECT_EQ(AnswersEqual(c.expected, c.given), c.equal)
        << c.expected << " vs " << c.given;
  }
}

TEST(GradeAnswerTest, ARightNumberWithoutABoxIsNotVerified) {
  EXPECT_FALSE(GradeAnswer("The answer is 5.", "5").correct);
  EXPECT_TRUE(GradeAnswer("So \\boxed{5}.", "5").correct);
  EXPECT_TRUE(GradeAnswer("So \\boxed{6}.", "5").has_box);
  EXPECT_FALSE(GradeAnswer("So \\boxed{6}.", "5").correct);
}

}  // namespace
}  // namespace dapd
