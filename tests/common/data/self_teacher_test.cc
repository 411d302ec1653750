#include "common/data/self_teacher.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> SiblingsOf(const std::vector<GradedAnswer>& group) {
  std::vector<std::string> siblings;
  for (const TeacherContext& context :
       TeacherContexts(group, FeedbackRule::kNever)) {
    EXPECT_EQ(context.feedback, "");
    siblings.push_back(context.sibling);
  }
  return siblings;
}

TEST(SelfTeacherTest, EachAnswerGetsTheFirstOtherOneThatIsRight) {
  EXPECT_THAT(
      SiblingsOf({{"a", false}, {"b", true}, {"c", false}, {"d", true}}),
      ElementsAre("b", "d", "b", "b"));
}

TEST(SelfTeacherTest, NoAnswerIsItsOwnSibling) {
  EXPECT_THAT(SiblingsOf({{"a", false}, {"b", true}}), ElementsAre("b", ""));
  EXPECT_THAT(SiblingsOf({{"a", true}}), ElementsAre(""));
  EXPECT_THAT(SiblingsOf({{"a", false}, {"b", false}}), ElementsAre("", ""));
}

TEST(SelfTeacherTest, ThoughtsAreNotShown) {
  EXPECT_THAT(SiblingsOf({{"a", false}, {"<think>hm</think>\n\nb", true}}),
              ElementsAre("b", ""));
  EXPECT_THAT(
      SiblingsOf(
          {{"a", false}, {"<think>\\boxed{1}</think>\n", true}, {"c", true}}),
      ElementsAre("c", "c", ""))
      << "one of which nothing is left has nothing to show";
}

TEST(SelfTeacherTest, FeedbackIsOnWhatIsWrongOnly) {
  const std::vector<GradedAnswer> group = {
      {"a", false, "not a"}, {"b", true, "not b"}, {"c", false, "not c"}};
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
}

TEST(SelfTeacherTest, AContextOfNeitherIsEmpty) {
  EXPECT_TRUE(TeacherContext{}.empty());
  EXPECT_FALSE((TeacherContext{.sibling = "a"}.empty()));
  EXPECT_FALSE((TeacherContext{.feedback = "a"}.empty()));
}

TEST(WithoutThoughtsTest, WholeBlocksGoWithTheWhiteSpaceBehindThem) {
  EXPECT_EQ(WithoutThoughts("a"), "a");
  EXPECT_EQ(WithoutThoughts("a <think>b</think>\n c"), "a c");
  EXPECT_EQ(WithoutThoughts("<think>a</think><think></think> b"), "b");
  EXPECT_EQ(WithoutThoughts("<think>a"), "<think>a") << "not closed";
  EXPECT_EQ(WithoutThoughts("a</think>b"), "a</think>b") << "not opened";
}

TEST(VerdictTest, NamesTheResultAndNotTheExpectedOne) {
  EXPECT_EQ(VerdictOn("so \\boxed{4}"),
            "The final result \\boxed{4} is wrong.");
  EXPECT_EQ(VerdictOn("so 4"), "There is no final result in \\boxed{}.");
}

}  // namespace
}  // namespace dapd
