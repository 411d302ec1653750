#include "common/config/prompts.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kInstruction[] =
    "Please reason step by step, and put your final answer within \\boxed{}.";

TEST(PromptsTest, TheReleasedOnesAreTheDefaults) {
  const Prompts prompts;
  const std::string ask = kInstruction;
  EXPECT_EQ(prompts.None("{x}"), "Problem: {x}\n\n" + ask);
  const std::string shown =
      "Here is a reference solution to this problem:\n=== Reference Solution "
      "Begin ===\n{reference}\n=== Reference Solution End ===\n\n\nAfter "
      "reading the reference solution above, make sure you truly understand "
      "the reasoning behind each step \xE2\x80\x94 do not copy or paraphrase "
      "it. Now, using your own words and independent reasoning, derive the "
      "same final answer to the problem above. Think step by step, explore "
      "different approaches, and don't be afraid to backtrack or reconsider "
      "if something doesn't work out:\n\n" +
      ask;
  EXPECT_EQ(prompts.Privileged("p", "{reference}"), "Problem: p\n\n" + shown);
  EXPECT_EQ(prompts.Probe("{reference}"), shown);
  EXPECT_EQ(prompts.Demonstration("p", "r"),
            "\nProblem: p\n\n" + ask +
                "\n\nThis is an example for a response to the question:\nr\n\n"
                "Now answer with a response of your own, including the "
                "thinking process.\n");
  EXPECT_EQ(prompts.Sibling("p", "s", "f"),
            "Problem: p\n\n" + ask +
                "\nCorrect solution:\n\ns\nThe following is feedback from "
                "your unsuccessful earlier attempt:\n\nf\n\nCorrectly solve "
                "the original question.");
  EXPECT_EQ(prompts.most_problems(), 1u);
  EXPECT_EQ(prompts.most_references(), 1u);
  EXPECT_THAT(FindPromptProblems({}), IsEmpty());
  EXPECT_THAT(FindPromptProblems({.privileged = kReleasedPrivilegedOfOpsdV1}),
              IsEmpty());
}

TEST(PromptsTest, ThePromptOfAnotherIsFilledIn) {
  const Prompts prompts(
      {.none = "{problem}, {problem}?",
       .privileged = "{prompt} {reference} {reference} {problem}"});
  EXPECT_EQ(prompts.Privileged("a", "b"), "a, a? b b a");
  EXPECT_EQ(prompts.most_problems(), 3u);
  EXPECT_EQ(prompts.most_references(), 2u);
}

TEST(PromptsTest, TheSiblingsPartsAreThereWhenTheyHaveSomethingToSay) {
  const Prompts prompts({.none = "{problem}?",
                         .sibling = "{solution}{problem} {feedback}({prompt})",
                         .sibling_solution = "<{reference}> ",
                         .sibling_feedback = "<{feedback}> "});
  EXPECT_EQ(prompts.Sibling("p", "s", "f"), "<s> p <f> (p?)");
  EXPECT_EQ(prompts.Sibling("p", "s", ""), "<s> p (p?)");
  EXPECT_EQ(prompts.Sibling("p", std::nullopt, "f"), "p <f> (p?)");
  EXPECT_EQ(prompts.Sibling("p", "", ""), "<> p (p?)")
      << "a sibling without a text is one";
  // A sibling's text is not searched for fields.
  EXPECT_EQ(prompts.Sibling("p", "{feedback}", ""), "<{feedback}> p (p?)");
}

TEST(PromptsTest, ASelfTeacherIsToldOfSiblingsAndOfWhatIsWrong) {
  Config config;
  config.prompts.sibling = "{prompt} {solution} {feedback}";
  config.prompts.sibling_solution = "{reference}, again: {reference}";
  config.prompts.sibling_feedback = "{feedback} {feedback} {feedback}";
  config.prompts.feedback_wrong = "{answer} is wrong";
  const auto told = [&](FeedbackRule feedback, int64_t group_size) {
    config.objective.sdpo.feedback = feedback;
    config.rollout.group_size = group_size;
    return MostAnswersTold(config);
  };
  EXPECT_EQ(told(FeedbackRule::kNever, 8), 2);
  EXPECT_EQ(told(FeedbackRule::kWithoutSibling, 8), 3) << "one or the other";
  EXPECT_EQ(told(FeedbackRule::kAlways, 8), 2 + 3);
  EXPECT_EQ(told(FeedbackRule::kNever, 1), 0) << "an answer has no siblings";
  EXPECT_EQ(told(FeedbackRule::kWithoutSibling, 1), 3);
  EXPECT_EQ(told(FeedbackRule::kAlways, 1), 3);
  config.prompts.feedback_wrong = "wrong";
  EXPECT_EQ(told(FeedbackRule::kAlways, 8), 2)
      << "no feedback quotes an answer";
  // A grader of the user's own writes the feedback, of at most so many bytes.
  EXPECT_EQ(MostFeedbackTold(config), 0);
  config.prompts.feedback_wrong = "{answer} is wrong";
  config.grader.command = {"grade"};
  config.grader.max_feedback_bytes = 100;
  EXPECT_EQ(told(FeedbackRule::kAlways, 8), 2);
  EXPECT_EQ(MostFeedbackTold(config), 300);
  EXPECT_EQ(told(FeedbackRule::kNever, 8), 2);
  EXPECT_EQ(MostFeedbackTold(config), 0);
}

TEST(PromptsTest, FeedbackIsSDPOsUnlessItIsGiven) {
  const Prompts released;
  EXPECT_EQ(released.Feedback(true, "4", false), "");
  EXPECT_EQ(released.Feedback(false, "4", false), "");
  const std::string unboxed =
      "Your answer had the wrong format. The solution must be given in the "
      "format: \\boxed{your_answer}.";
  EXPECT_EQ(released.Feedback(false, std::nullopt, false), unboxed);
  EXPECT_EQ(released.Feedback(false, "", false), unboxed);
  for (const bool correct : {true, false}) {
    EXPECT_EQ(
        released.Feedback(correct, correct ? "4" : "", true),
        "Your response was truncated because it exceeded the maximum length.");
  }
  const Prompts own({.feedback_wrong = "not {answer}",
                     .feedback_unboxed = "",
                     .feedback_truncated = "shorter"});
  EXPECT_EQ(own.Feedback(false, "4", false), "not 4");
  EXPECT_EQ(own.Feedback(true, "4", false), "");
  EXPECT_EQ(own.Feedback(false, std::nullopt, false), "");
  EXPECT_EQ(own.Feedback(false, std::nullopt, true), "shorter");
}

TEST(PromptsTest, EveryMistakeIsNamedWithItsKey) {
  EXPECT_THAT(
      FindPromptProblems({.none = "nothing",
                          .privileged = "{problem}",
                          .demonstration = "{reference} {feedback}",
                          .probe = "{problem} {reference}",
                          .sibling = "{answer}",
                          .sibling_solution = "{feedback}",
                          .sibling_feedback = "{reference}",
                          .feedback_wrong = "{answer} {problem}"}),
      ElementsAre(
          HasSubstr("prompts.none: {problem} is missing"),
          HasSubstr("prompts.privileged: {reference} is missing"),
          HasSubstr("prompts.demonstration: {feedback} is not allowed here"),
          HasSubstr("prompts.probe: {problem} is not allowed here"),
          HasSubstr("prompts.sibling: {solution} is missing"),
          HasSubstr("prompts.sibling: {feedback} is missing"),
          HasSubstr("prompts.sibling: {answer} is not allowed here"),
          HasSubstr("sibling_solution: {reference} is missing"),
          HasSubstr("sibling_solution: {feedback} is not allowed here"),
          HasSubstr("sibling_feedback: {feedback} is missing"),
          HasSubstr("sibling_feedback: {reference} is not allowed here"),
          HasSubstr("feedback_wrong: {problem} is not allowed here")));
  EXPECT_THAT(FindPromptProblems({.none = "{problem} {reference} {prompt}"}),
              ElementsAre(HasSubstr("{reference} is not allowed here"),
                          HasSubstr("{prompt} is not allowed here")));
  EXPECT_THAT(FindPromptProblems({.system = "{reference} {context}"}),
              ElementsAre(HasSubstr("prompts.system: {reference} is not"),
                          HasSubstr("prompts.system: {context} is not")));
  EXPECT_THAT(FindPromptProblems({.none = "{problem} {context}"}),
              ElementsAre(HasSubstr("prompts.none: {context} is not allowed")));
}

TEST(PromptsTest, EveryMessageShowsColumnsOfTheRow) {
  const PromptColumns columns = {
      {"hint", "H"}, {"tests", "[1, 2]"}, {"context", "C{hint}"}};
  const PromptsSection section = {
      .system = "S {tests} {problem}",
      .none = "{problem} {hint}",
      .privileged = "{prompt} | {context}",
      .demonstration = "{reference} {context} {tests}",
      .probe = "{reference} {hint}",
      .sibling = "{prompt} {solution} {feedback} {tests}",
      .sibling_solution = "<{reference} {hint}>",
      .sibling_feedback = "({feedback} {hint})",
      .feedback_wrong = "not {answer}, {tests}",
      .feedback_unboxed = "no box, {tests}",
      .feedback_truncated = "long, {tests}"};
  EXPECT_THAT(FindPromptProblems(section), ElementsAre());
  const Prompts prompts(section);
  EXPECT_EQ(prompts.System("P", columns), "S [1, 2] P");
  EXPECT_EQ(prompts.None("P", columns), "P H");
  EXPECT_EQ(prompts.Privileged("P", "R", columns), "P H | C{hint}");
  EXPECT_EQ(prompts.Demonstration("P", "R", columns), "R C{hint} [1, 2]");
  EXPECT_EQ(prompts.Probe("R", columns), "R H");
  EXPECT_EQ(prompts.Sibling("P", "R", "F", columns), "P H <R H> (F H) [1, 2]");
  EXPECT_EQ(prompts.Feedback(false, "4", false, columns), "not 4, [1, 2]");
  EXPECT_EQ(prompts.Feedback(false, "", false, columns), "no box, [1, 2]");
  EXPECT_EQ(prompts.Feedback(false, "", true, columns), "long, [1, 2]");
  EXPECT_THAT(prompts.Columns(), ElementsAre("context", "hint", "tests"));
  EXPECT_THAT(prompts.QuestionColumns(), ElementsAre("hint", "tests"));
  EXPECT_EQ(Prompts().System("P"), std::nullopt);
  EXPECT_THAT(Prompts().Columns(), ElementsAre());
}

}  // namespace
}  // namespace dapd
