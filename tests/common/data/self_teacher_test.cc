#include "common/data/self_teacher.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

// "-" stands for no sibling.
std::vector<std::string> SiblingsOf(const std::vector<GradedAnswer>& group) {
  std::vector<std::string> siblings;
  for (const TeacherContext& context :
       TeacherContexts(group, FeedbackRule::kNever)) {
    EXPECT_EQ(context.feedback, "");
    siblings.push_back(context.sibling.value_or("-"));
  }
  return siblings;
}

TEST(SelfTeacherTest, EachAnswerGetsTheFirstOtherOneThatIsRight) {
  EXPECT_THAT(
      SiblingsOf({{"a", false}, {"b", true}, {"c", false}, {"d", true}}),
      ElementsAre("b", "d", "b", "b"));
}

TEST(SelfTeacherTest, NoAnswerIsItsOwnSibling) {
  EXPECT_THAT(SiblingsOf({{"a", false}, {"b", true}}), ElementsAre("b", "-"));
  EXPECT_THAT(SiblingsOf({{"a", true}}), ElementsAre("-"));
  EXPECT_THAT(SiblingsOf({{"a", false}, {"b", false}}), ElementsAre("-", "-"));
}

TEST(SelfTeacherTest, ThoughtsAreNotShown) {
  EXPECT_THAT(SiblingsOf({{"a", false}, {"<think>hm</think>\n\nb", true}}),
              ElementsAre("b", "-"));
  EXPECT_THAT(
      SiblingsOf(
          {{"a", false}, {"<think>\\boxed{1}</think>\n", true}, {"c", true}}),
      ElementsAre("", "c", ""))
      << "an answer of which nothing is left is one all the same";
}

TEST(SelfTeacherTest, FeedbackIsGivenWhereItSaysSomething) {
  const std::vector<GradedAnswer> group = {
      {"a", false, "not a"}, {"b", true, " \n"}, {"c", false, "not c"}};
  const auto of = [&](FeedbackRule rule, std::vector<GradedAnswer> answers) {
    std::vector<std::string> feedback;
    for (const TeacherContext& context : TeacherContexts(answers, rule)) {
      feedback.push_back(context.feedback);
    }
    return feedback;
  };
  EXPECT_THAT(of(FeedbackRule::kNever, group), ElementsAre("", "", ""));
  EXPECT_THAT(of(FeedbackRule::kAlways, group),
              ElementsAre("not a", "", "not c"));
  EXPECT_THAT(of(FeedbackRule::kWithoutSibling, group),
              ElementsAre("", "", ""));
  EXPECT_THAT(of(FeedbackRule::kWithoutSibling, {group[0], group[2]}),
              ElementsAre("not a", "not c"));
  EXPECT_THAT(of(FeedbackRule::kWithoutSibling, {{"a", true, "cut off"}}),
              ElementsAre("cut off"))
      << "also of a right answer";
}

TEST(SelfTeacherTest, AContextOfNeitherIsEmpty) {
  EXPECT_TRUE(TeacherContext{}.empty());
  EXPECT_FALSE((TeacherContext{.sibling = ""}.empty()));
  EXPECT_FALSE((TeacherContext{.feedback = "a"}.empty()));
}

TEST(WithoutThoughtsTest, WholeBlocksGoWithTheWhiteSpaceBehindThem) {
  EXPECT_EQ(WithoutThoughts("a"), "a");
  EXPECT_EQ(WithoutThoughts("a <think>b</think>\n c"), "a c");
  EXPECT_EQ(WithoutThoughts("<think>a</think><think></think> b"), "b");
  EXPECT_EQ(WithoutThoughts("<think>a</think>\xC2\xA0\xE3\x80\x80\x1F b"), "b")
      << "no-break and ideographic spaces are white space, too";
  EXPECT_EQ(WithoutThoughts("<think>a</think>\xE2\x80\x8B b"), "\xE2\x80\x8B b")
      << "a space of no width is none";
  EXPECT_EQ(WithoutThoughts("<think>a"), "<think>a") << "not closed";
  EXPECT_EQ(WithoutThoughts("a</think>b"), "a</think>b") << "not opened";
}

}  // namespace
}  // namespace dapd
