#include "common/data/grade_answer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ExtractBoxedTest, TheLastBalancedBoxCounts) {
  EXPECT_EQ(ExtractBoxed("a \\boxed{1}. Then it is \\boxed{2}"), "2");
  EXPECT_EQ(ExtractBoxed("\\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(ExtractBoxed("\\boxed{1} then \\boxed{2"), "1");
  EXPECT_EQ(ExtractBoxed("no box {here}"), std::nullopt);
  EXPECT_EQ(ExtractBoxed("\\boxed{}"), "");
}

TEST(ExtractBoxedTest, BoxesOfOneStatementCountTogether) {
  EXPECT_EQ(ExtractBoxed("$k=\\boxed{3}$ and $k=\\boxed{-7}$"), "3, -7");
  EXPECT_EQ(ExtractBoxed("\\boxed{3}\n\\boxed{-7}"), "3, -7");
  EXPECT_EQ(ExtractBoxed("\\boxed{3}, and last of all \\boxed{-7}"), "3, -7");
  EXPECT_EQ(ExtractBoxed("\\boxed{3}, and last of all \\boxed{3}"), "3");
  EXPECT_EQ(ExtractBoxed("\\boxed{3}. The sandy store has \\boxed{-7}"), "-7");
  EXPECT_EQ(ExtractBoxed("\\boxed{3}</think>\\boxed{-7}"), "-7");
  EXPECT_EQ(ExtractBoxed("\\fbox{3} \\boxed {4}"), "3, 4");
}

TEST(ExtractBoxedTest, ATextMayStateNoSingleThing) {
  EXPECT_FALSE(IsUnclear("no box"));
  EXPECT_FALSE(IsUnclear("\\boxed{3} and \\boxed{4}"));
  EXPECT_FALSE(IsUnclear("\\boxed{3}. As was shown above: \\boxed{3}"));
  EXPECT_TRUE(IsUnclear("\\boxed{3}. As was shown above: \\boxed{4}"));
  EXPECT_TRUE(IsUnclear("\\boxed{3"));
}

TEST(ExtractBoxedTest, BracesThatAreWrittenAreNotBalanced) {
  EXPECT_EQ(ExtractBoxed("\\boxed{\\{1, 2\\}}"), "\\{1, 2\\}");
  EXPECT_EQ(ExtractBoxed("\\boxed{\\left\\{\\begin{array}{l}x=1\\\\"
                         "y=2\\end{array}\\right.} a"),
            "\\left\\{\\begin{array}{l}x=1\\\\y=2\\end{array}\\right.");
  EXPECT_EQ(ExtractBoxed("\\\\boxed{1\\\\}"), "1\\\\");
}

struct Case {
  std::string given, expected;
  bool equal;
};

// Compares each pair in both orders.
void ExpectEitherWay(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(AnswersEqual(c.given, c.expected), c.equal)
        << c.given << " vs " << c.expected;
    EXPECT_EQ(AnswersEqual(c.expected, c.given), c.equal)
        << c.expected << " vs " << c.given;
  }
}

TEST(AnswersEqualTest, NumbersCompareExactlyAndTextNormalised) {
  ExpectEitherWay({
      {"3.50", "7/2", true},
      {"\\frac{7}{2}", "3.5", true},
      {"\\dfrac{1}{3}", "1/3", true},
      {"0.333333333333", "1/3", true},  // rounded to six decimals
      {"0.33333", "1/3", false},
      {"1,234,567", "1234567", true},
      {"12,34", "1234", false},
      {"-4", "4", false},
      {"- 4", "-4", true},
      {"-0", "0", true},
      {"5000 m", "5000", true},
      {"50\\%", "50", true},
      {"$42$", "42", true},
      {"12 \\text{ km}", "12", true},
      {"10000000000000000000000000001", "10000000000000000000000000000", false},
      {"1/0", "1/0", true},
      {"1/0", "2/0", false},
      {"Paris", " paris. ", true},
      {"x + 1", "x+1", true},
      {"", "", false},
      {"007", "7", true},
      {".5", "1/2", true},
      {"336^\\circ", "336", true},
      {"\\frac{-1}{2}", "-\\frac{1}{2}", true},
      {"2^{99}", "2^99", true},
      {"2^{99}", "2^{99}+1", false},
      {"4\\sqrt{37}+14", "14+4\\sqrt{37}", true},
      {"\\frac9{\\sqrt{23}}", "\\frac{9\\sqrt{23}}{23}", true},
      {"\\frac12", "0.5", true},
      {"1\\frac{1}{2}", "3/2", true},
      {"0.1\\overline{6}", "1/6", true},
      {"0.\\overline{36}", "4/11", true},
      {"0.\\overline{36}", "36", false},
      {"1.\\overline{27}", "14/11", true},
      {".\\overline{3}", "\\frac13", true},
      {"0.\\overline{3}", "0.3", false},
      {"0.\\overline{9}", "1", true},
      {"0.\\bar{3}", "1/3", true},
      {"0.1\\overline6", "1/6", true},
      {"5.", "5", true},
      {"x=5", "5", true},
      {"x=5", "y=5", false},
      {"2x", "2", false},
      {"2xy", "2", false},
      {"12.5\\%", "12.5", false},
      {"12.5\\%", "1/8", true},
      {"5 \\text{ apples}", "5", true},
      {"60 km/h", "60", true},
      {"3\\text{ m}^2", "3", true},
      {"\\text{yes}", "Yes", true},
      {"\\text{(A)}", "A", true},
      {"\\text{no}", "yes", false},
      {"1/0", "0", false},
      {"1000000!", "2000000!", false},
      {"10^{10^{10}}", "10^{10^{11}}", false},
  });
}

TEST(AnswersEqualTest, WhatStandsAboveAndBelowFillsTheGroup) {
  ExpectEitherWay({
      {"{10 \\choose 3}", "120", true},
      {"10 \\choose 3", "\\binom{10}{3}", true},
      {"2{5 \\choose 2}+1", "21", true},
      {"{n+1 \\choose k}", "\\binom{n+1}{k}", true},
      {"{10 \\choose 3}", "\\frac{10}{3}", false},
      {"{1 \\over 2}", "0.5", true},
      {"3 \\over 4+1", "\\frac{3}{5}", true},
      {"x^{1 \\over 2}", "\\sqrt{x}", true},
      {"\\choose 3", "3", false},
  });
}

TEST(AnswersEqualTest, ASpaceBehindABackslashEndsAnAnswer) {
  EXPECT_TRUE(AnswersEqual("\\arf12\\", "\\arf12\\ "));
  EXPECT_TRUE(GradeAnswer("So \\boxed{\\arf12\\ }.", "\\arf12\\ ").correct);
}

TEST(AnswersEqualTest, UnitsWithinAListAreLeftOut) {
  ExpectEitherWay({
      {"3 cm, 4 cm", "3, 4", true},
      {"3 \\text{ cm}^2, 4 \\text{ cm}^2", "4, 3", true},
      {"x = 3\\text{ m}, y = 4\\text{ m}", "x = 3, y = 4", true},
      {"5 \\text{ apples}, 3 \\text{ pears}", "5, 3", true},
      {"2 s, 3 t", "2s, 3t", true},
      {"2 s, 3 t", "2, 3t", false},
      {"3 cm, 4 cm", "4 cm, 5 cm", false},
      {"(3 \\text{A}, 4)", "(3, 4)", false},
  });
}

TEST(AnswersEqualTest, LargeNumbersAreNotRounded) {
  ExpectEitherWay({
      {"5^{2023}-4", "5^{2023}", false},
      {"5^{2023}-4+4", "5^{2023}", true},
      {"10^{2024}-1", "10^{2024}", false},
      {"2^{5000}", "4^{2500}", true},
      {"10^{6000}+1", "10^{6000}", false},
      {"10^{6000}", "\\infty", false},
      {"\\frac{1}{10^{2024}+1}", "\\frac{1}{10^{2024}}", false},
      {"1000!", "1000!+1", false},
      {"2024!", "2024\\cdot 2023!", true},
      {"\\binom{1000}{2}", "499500", true},
      {"\\binom{2024}{1012}", "\\binom{2024}{1012}+1", false},
      {"(-1)^{2024!}", "1", false},
      {"(-1)^{5000}", "1", true},
      // Beyond the limit of exact numbers, only equal texts are equal numbers.
      {"10^{99999}", "10^{99999}", true},
      {"10^{99999}", "10^{99998}\\cdot 10", false},
      {"10^{99999}+1", "10^{99999}", false},
      {"9^{10000}\\cdot 9^{10000}", "9^{20001}", false},
      {"10^{9000}+x", "10^{9000}+y", false},
      {"9999!", "9999!+1", false},
  });
}

TEST(AnswersEqualTest, RootsArePowers) {
  ExpectEitherWay({
      {"\\sqrt[3]{x}", "x^{1/3}", true},
      {"\\sqrt[3]{x^2}", "x^{\\frac23}", true},
      {"x\\sqrt[3]{x}", "x^{4/3}", true},
      {"\\sqrt[5]{x}", "x^{0.2}", true},
      {"\\frac{1}{\\sqrt[3]{x}}", "x^{-1/3}", true},
      {"(-8)^{1/3}", "-2", true},
      {"\\sqrt{x}", "x^{1/2}", true},
      {"\\sqrt[3]{x}", "x^{2/3}", false},
      {"x^{1/3}", "-x^{1/3}", false},
      {"x^0", "1", true},
      {"x^2", "|x|^2", true},
      {"x^3", "|x|^3", false},
  });
}

TEST(AnswersEqualTest, NumbersBesideEachOtherAreOneNumberOrNone) {
  ExpectEitherWay({
      {"2 1/2", "1", false},
      {"2 1/2", "21/2", false},
      {"2 1/2", "2.5", true},
      {"2 1/2 \\text{ hours}", "2.5", true},
      {"-2\\ 1/2", "-\\frac{5}{2}", true},
      {"5 2/3\\%", "17/300", true},
      {"2 5/3", "2 5/3", true},
      {"2 5/3", "10/3", false},
      {"2 1/2^2", "1/2", false},
      {"7 654", "7654", true},
      {"7 654", "4578", false},
      {"1\\,000\\,000\\text{ km}", "1000000", true},
      {"1\\,000\\,000\\text{ km}", "0", false},
      {"10~000.5", "10000.5", true},
      {"2 100/301", "2+100/301", true},
      {"1 23", "123", false},
      {"0 123", "123", false},
      {"12 34", "408", false},
      {"1 2 3", "6", false},
      {"1 2 3", "1,2,3", false},
      {"\\frac{1}{2 3}", "1/6", false},
      {"\\sin 2 3", "\\sin 6", false},
      {"2^3 4", "32", false},
      {"x^2 3", "3x^2", true},
      {"2(3)", "6", true},
      {"\\frac123", "1.5", true},
      {"2+3\\mathrm{i}", "5", false},
      {"2+3\\mathrm{i}", "2+3i", true},
      {"2\\mathrm{e}", "2e", true},
      {"2\\mathrm{m}", "2", true},
  });
}

TEST(AnswersEqualTest, UnitsBehindAValueAreLeftOut) {
  ExpectEitherWay({
      {"9.8\\,\\text{m/s}", "9.8", true},
      {"9.8\\,\\mathrm{m/s^2}", "9.8", true},
      {"9.8\\text{m/s}^2", "9.8", true},
      {"v = 9.8 \\ \\text{m/s}", "9.8", true},
      {"5\\,\\mathrm{m^2}", "5", true},
      {"5\\,\\mathrm{g/cm^3}", "5", true},
      {"5 \\text{ miles}/\\text{hour}", "5", true},
      {"4\\pi\\text{ m}", "4\\pi", true},
      {"4\\pi\\,\\mathrm{cm^2}", "4\\pi", true},
      {"\\sqrt{3}\\,\\text{m}", "\\sqrt3", true},
      {"\\frac{1}{2}\\text{h}", "\\frac12", true},
      {"25^{\\circ}\\text{C}", "25", true},
      {"25^\\circ\\text{C}", "25", true},
      {"\\frac{1}{2}\\mathrm{R}", "\\frac12 R", true},
      {"4\\pi\\,\\text{m}", "4\\pi^2", false},
      // Vectors are not units.
      {"3\\mathbf{v}", "3", false},
      {"2\\mathbf{a}+3\\mathbf{b}", "3\\mathbf{b}+2\\mathbf{a}", true},
      {"4\\mathbf{i}-3\\mathbf{j}", "4\\mathbf{i}-3", false},
  });
}

TEST(AnswersEqualTest, RatiosCompareUpToAFactor) {
  ExpectEitherWay({
      {"3:4:5", "3:5:4", false},
      {"3:4:5", "6 : 8 : 10", true},
      {"3:4:5", "3/20", false},
      {"3:4:5", "3:4", false},
      {"3:4:5", "3, 4, 5", false},
      {"1:\\sqrt{2}:0", "\\sqrt{2}:2:0", true},
      {"1:0:0", "1:0:1", false},
      {"0:0:1", "0:1:0", false},
      {"0:0:0", "1:1:1", false},
      {"0:2:3", "0:4:6", true},
      {"3:4", "6:8", true},
      {"(3:4)", "0.75", true},
      {"a+b:c", "\\frac{a+b}{c}", true},
  });
}

TEST(AnswersEqualTest, AnEquationIsWhatItsLeftHandSideIsSaidToBe) {
  ExpectEitherWay({
      {"m\\angle A = 50^\\circ", "50", true},
      {"m\\angle A = 50", "m\\angle A = 50^\\circ", true},
      {"m\\angle A = 50", "m\\angle B = 50", false},
      {"P(A|B) = \\frac13", "1/3", true},
      {"\\text{Area} = 55", "55", true},
      {"\\text{Area} = 55", "Area = 55", true},
      {"\\text{Area} = 55", "\\text{Volume} = 55", false},
      {"(x,y) = (2,3)", "(2, 3)", true},
      {"(x,y) = (2,3)", "(3, 2)", false},
      {"f(2) = 7", "7", true},
      {"f(2) = 7", "f(3) = 7", false},
      {"f^{-1}(x) = \\frac{x-1}{2}", "\\frac{x-1}{2}", true},
      {"= 5", "5", true},
      {"x = y = 5", "5", true},
      {"x = y = 5", "y", false},
      {"4\\pi \\approx 12.57", "4\\pi", true},
      {"4\\pi \\approx 12.57", "12.57", true},
      {"x = 4\\pi \xE2\x89\x88 12.57", "4\\pi", true},
      {"x = 4\\pi \\approx 12.57", "x", false},
      {"x \\approx 12.57", "x", false},
      {"\\approx 12.57", "12.57", true},
      {"x \\approx 12.57", "x = 12.57", true},
      {"BC = 10", "AB = 10", false},
      {"a, b = 3", "3", false},
      {"= = 3", "3", false},
  });
}

TEST(AnswersEqualTest, WhatIsComputedOnTheLeftCountsOnlyIfItIsExpected) {
  for (const Case& c :
       std::vector<Case>{{"2x = 10", "10", true},
                         {"|z + 1| = 5", "5", true},
                         {"5a+b = 9", "9", true},
                         {"9 = 5a+b", "5a+b", true},
                         {"A\\cup B = \\{1,2\\}", "2,1", true}}) {
    EXPECT_TRUE(AnswersEqual(c.given, c.expected)) << c.given;
    EXPECT_FALSE(AnswersEqual(c.expected, c.given)) << c.given;
  }
}

TEST(AnswersEqualTest, NamesOnTheLeftAreALabel) {
  ExpectEitherWay({{"PQ = 14", "14", true},
                   {"PQ = 14", "15", false},
                   {"PQ = 14", "RS = 14", false},
                   {"|z| = 5", "5", true},
                   {"\\cos\\theta = 0.5", "1/2", true},
                   {"a+b = 7", "7", true},
                   {"S_{12} = 7", "7", true},
                   {"\\frac{AB}{CD} = 7", "7", true},
                   {"AB = 3, BC = 4", "4, 3", true}});
}

TEST(AnswersEqualTest, SetsTuplesAndRelationsCompareByTheirParts) {
  ExpectEitherWay({
      {"1, 2", "2, 1", true},
      {"\\{1, 2\\}", "2,1", true},
      {"\\{1, 2\\}", "\\{1, 2, 2\\}", false},
      {"(1, 2)", "(2, 1)", false},
      {"(10,100)", "(10, 100)", true},
      {"(10,100)", "(10, 200)", false},
      {"\\left(1, \\frac{1}{2}\\right)", "(1, 0.5)", true},
      {"[1, 2)", "[1,2)", true},
      {"[1, 2)", "[1, 2]", false},
      {"(-\\infty, 1)\\cup(2, \\infty)", "(2,\\infty)\\cup(-\\infty,1)", true},
      {"\\pm 3", "3, -3", true},
      {"\\frac{3\\pm\\sqrt{5}}{2}",
       "\\frac{3-\\sqrt5}{2}, \\frac{3+\\sqrt5}{2}",
       true},
      {"(3\\pm 1)/2", "1, 2", true},
      {"x=2 \\text{ or } x=3", "2, 3", true},
      {"y=2x+1", "y-2x=1", true},
      {"y=2x", "x=\\frac{y}{2}", true},
      {"x=y", "y=x", true},
      {"x=y", "y=-x", false},
      {"y=2x+1", "y=2x+2", false},
      {"(x+1)^2", "x^2+2x+1", true},
      {"x<5", "5>x", true},
      {"x<5", "x\\le 5", false},
      {"1<x\\le 2", "(1, 2]", true},
      {"x \\in [1, 2]", "[1, 2]", true},
      {"x<1 \\text{ or } x>2", "(-\\infty,1)\\cup(2,\\infty)", true},
      {"x>2, x\\le 1", "x\\in(-\\infty,1]\\cup(2,\\infty)", true},
      {"x<1 \\text{ or } x>2", "(-\\infty,1]\\cup(2,\\infty)", false},
      {"x<1 \\text{ or } y>2", "(-\\infty,1)\\cup(2,\\infty)", false},
      {"\\mathbb{R}", "(-\\infty, \\infty)", true},
      {"x \\in \\mathbb R", "(-\\infty, \\infty)", true},
      {"\\mathbb{R}", "(0, \\infty)", false},
      {"\\vec v+2\\vec w", "2\\vec{w}+\\vec{v}", true},
      {"\xE2\x84\x9D", "\\mathbb{R}", true},
      {"\xE2\x88\x85", "\\emptyset", true},
      {"x\xC2\xB2 - 2\xC2\xB3", "x^2 - 8", true},
      {"2\xC2\xBD", "2.5", true},
      {"x=[", "x=[", true},
      {"\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
       "\\begin{bmatrix}1 & 2 \\\\ 3 & 4\\end{bmatrix}",
       true},
      {"\\left[\\begin{array}{c|c}1&2\\\\3&4\\end{array}\\right]",
       "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
       true},
      {"\\left(\\begin{array}{c}1\\end{array}\\right]",
       "\\begin{pmatrix}1\\end{pmatrix}",
       false},
      {"\\begin{pmatrix}1\\\\2\\end{pmatrix}",
       "\\begin{pmatrix}2\\\\1\\end{pmatrix}",
       false},
      {"2\\begin{pmatrix}1\\\\2\\end{pmatrix}",
       "\\begin{pmatrix}2\\\\4\\end{pmatrix}",
       true},
      {"\\frac{1}{2} \\cdot \\begin{pmatrix}1&x\\end{pmatrix}",
       "\\begin{pmatrix}0.5&x/2\\end{pmatrix}",
       true},
      {"v = -\\begin{pmatrix}1\\\\2\\end{pmatrix}",
       "\\begin{pmatrix}-1\\\\-2\\end{pmatrix}",
       true},
      {"2\\begin{pmatrix}1\\\\2\\end{pmatrix}",
       "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
       false},
      {"2\\begin{pmatrix}(1,2)\\end{pmatrix}",
       "\\begin{pmatrix}(1,2)\\end{pmatrix}",
       false},
  });
}

TEST(GradeAnswerTest, ARightNumberWithoutABoxIsNotVerified) {
  EXPECT_FALSE(GradeAnswer("The answer is 5.", "5").correct);
  EXPECT_TRUE(GradeAnswer("So \\boxed{5}.", "5").correct);
  EXPECT_TRUE(GradeAnswer("So \\boxed{6}.", "5").has_box);
  EXPECT_FALSE(GradeAnswer("So \\boxed{6}.", "5").correct);
}

}  // namespace
}  // namespace dapd
