#include "common/config/prompt_template.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;

std::string Filled(const std::string& text) {
  return PromptTemplate(text).Fill({"P", "R{problem}", "N"});
}

TEST(PromptTemplateTest, FieldsAreFilledAndNothingThatTheyHoldIs) {
  EXPECT_EQ(Filled("{problem}"), "P");
  EXPECT_EQ(Filled("a {problem}\n\n{reference} {prompt}z"),
            "a P\n\nR{problem} Nz");
  EXPECT_EQ(Filled("{problem}{problem}"), "PP");
  EXPECT_EQ(Filled("no field"), "no field");
  EXPECT_EQ(Filled(""), "");
}

TEST(PromptTemplateTest, BracesAroundAnythingButAWordAreText) {
  for (const char* text : {"\\boxed{}",
                           "\\boxed{\\frac{1}{2}}",
                           "x^{n}",
                           "{\"answer\": 3}",
                           "{ problem }",
                           "{two words}",
                           "{12}",
                           "{{}}",
                           "}{",
                           "{",
                           "{{{",
                           "}}}",
                           "{problem",
                           "problem}",
                           "{caf\xC3\xA9}"}) {
    EXPECT_EQ(Filled(text), text);
  }
}

TEST(PromptTemplateTest, EveryTwoPairsOfBracesAroundAWordAreOneOfText) {
  EXPECT_EQ(Filled("\\text{{apples}}"), "\\text{apples}");
  EXPECT_EQ(Filled("{{problem}}"), "{problem}");
  EXPECT_EQ(Filled("{{{problem}}}"), "{P}");
  EXPECT_EQ(Filled("{{{{problem}}}}"), "{{problem}}");
  // Only a pair that is closed counts.
  EXPECT_EQ(Filled("\\boxed{{problem}"), "\\boxed{P");
  EXPECT_EQ(Filled("{\\frac{problem}}"), "{\\fracP}");
}

TEST(PromptTemplateTest, AnyOtherWordStandsForAColumn) {
  const PromptTemplate prompt("{hint} {problem} {hint}{_x} {{tests}} {ab1}");
  EXPECT_THAT(prompt.Columns(), ElementsAre("_x", "ab1", "hint"));
  EXPECT_EQ(prompt.Fill({"P"}, {{"hint", "H{problem}"}, {"_x", "{hint}"}}),
            "H{problem} P H{problem}{hint} {tests} ");
  EXPECT_THAT(PromptTemplate("{problem} {context} {one two}").Columns(),
              ElementsAre("context"));
}

TEST(PromptTemplateTest, FieldsAreCounted) {
  const PromptTemplate prompt("{problem} {reference}{problem} {hint}");
  EXPECT_EQ(prompt.Count(PromptField::kProblem), 2u);
  EXPECT_EQ(prompt.Count(PromptField::kReference), 1u);
  EXPECT_EQ(prompt.Count(PromptField::kPrompt), 0u);
}

}  // namespace
}  // namespace dapd
