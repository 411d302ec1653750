#include "common/config/prompt_template.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::HasSubstr;

std::string Filled(const std::string& text) {
  const auto prompt = PromptTemplate::Parse(text);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return prompt->Fill({"P", "R{problem}", "N"});
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

TEST(PromptTemplateTest, AWordThatIsNoFieldIsNamed) {
  for (const char* word :
       {"result", "Problem", "problems", "_x", "ab1", "prompt_"}) {
    const auto prompt =
        PromptTemplate::Parse("x {" + std::string(word) + "} {problem}");
    EXPECT_TRUE(absl::IsInvalidArgument(prompt.status())) << word;
    EXPECT_THAT(std::string(prompt.status().message()),
                testing::AllOf(HasSubstr("{" + std::string(word) + "} is not"),
                               HasSubstr("{reference}"),
                               HasSubstr("{{" + std::string(word) + "}}")));
  }
}

TEST(PromptTemplateTest, FieldsAreCounted) {
  const auto prompt = PromptTemplate::Parse("{problem} {reference}{problem}");
  EXPECT_EQ(prompt->Count(PromptField::kProblem), 2u);
  EXPECT_EQ(prompt->Count(PromptField::kReference), 1u);
  EXPECT_EQ(prompt->Count(PromptField::kPrompt), 0u);
}

}  // namespace
}  // namespace dapd
