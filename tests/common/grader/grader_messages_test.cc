#include "common/grader/grader_messages.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<GraderResult> Parse(const std::string& text,
                                   size_t max_feedback_bytes = 100) {
  return ParseGraderResult(
      nlohmann::json::parse(text), "7", max_feedback_bytes);
}

TEST(GraderMessagesTest, AQuestionIsOneLineOfJson) {
  const std::string line = QuestionJson({.id = "7",
                                         .problem_id = "p",
                                         .problem = "a\nb",
                                         .reference = "\u00e9",
                                         .expected = "5",
                                         .answer = "bad \xff byte",
                                         .row_json = R"({"tests":["x"]})"});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(line),
            nlohmann::json({{"id", "7"},
                            {"problem_id", "p"},
                            {"problem", "a\nb"},
                            {"reference", "\u00e9"},
                            {"expected", "5"},
                            {"answer", "bad \xEF\xBF\xBD byte"},
                            {"row", {{"tests", {"x"}}}}}));
  EXPECT_TRUE(
      nlohmann::json::parse(QuestionJson({.id = "1"})).at("row").is_null());
}

TEST(GraderMessagesTest, SeveralQuestionsAreAList) {
  const GraderQuestion questions[] = {{.id = "1"}, {.id = "2"}};
  const auto message = nlohmann::json::parse(QuestionsJson(questions));
  ASSERT_EQ(message.at("answers").size(), 2);
  EXPECT_EQ(message.at("answers").at(1).at("id"), "2");
}

TEST(GraderMessagesTest, AScoreAloneDecides) {
  EXPECT_EQ(Parse(R"({"id":"7","score":0.5,"feedback":"fine"})").value(),
            (GraderResult{.correct = true, .score = 0.5, .feedback = "fine"}));
  EXPECT_EQ(Parse(R"({"id":"7","score":0.49})").value(),
            (GraderResult{.correct = false, .score = 0.49}));
  EXPECT_EQ(Parse(R"({"id":"7","score":1})").value().score, 1.0);
}

TEST(GraderMessagesTest, CorrectDecidesBesideAScore) {
  EXPECT_EQ(Parse(R"({"id":"7","correct":true,"score":0.2})").value(),
            (GraderResult{.correct = true, .score = 0.2}));
  EXPECT_EQ(Parse(R"({"id":"7","correct":false,"score":null})").value(),
            (GraderResult{.correct = false, .score = 0.0}));
  EXPECT_EQ(Parse(R"({"id":"7","correct":true,"more":[1]})").value(),
            (GraderResult{.correct = true, .score = 1.0}));
}

TEST(GraderMessagesTest, LongFeedbackIsCutBetweenCharacters) {
  EXPECT_EQ(Parse(R"({"id":"7","correct":false,"feedback":"ab\u00e9"})", 3)
                .value()
                .feedback,
            "ab");
}

TEST(GraderMessagesTest, AGraderMayDecline) {
  EXPECT_EQ(
      Parse(R"({"id":"7","error":"no tests\n"})").value(),
      (GraderResult{.ungraded = Ungraded::kDeclined, .error = "no tests\\n"}));
}

TEST(GraderMessagesTest, NonsenseIsRefused) {
  for (const auto& [text, why] :
       {std::pair(R"([1])", "not a JSON object"),
        std::pair(R"({"correct":true})", "'id' is not '7'"),
        std::pair(R"({"id":"8","correct":true})", "'id' is not '7'"),
        std::pair(R"({"id":7,"correct":true})", "'id' is not '7'"),
        std::pair(R"({"id":"7"})", "neither 'correct' nor 'score'"),
        std::pair(R"({"id":"7","error":5})", "'error' is not a text"),
        std::pair(R"({"id":"7","correct":1})", "neither true nor false"),
        std::pair(R"({"id":"7","score":1.01})", "from 0 to 1"),
        std::pair(R"({"id":"7","score":-0.1})", "from 0 to 1"),
        std::pair(R"({"id":"7","score":true})", "from 0 to 1"),
        std::pair(R"({"id":"7","score":"1"})", "from 0 to 1"),
        std::pair(R"({"id":"7","correct":true,"feedback":3})", "not a text")}) {
    const auto result = Parse(text);
    EXPECT_THAT(result.status().message(), HasSubstr(why)) << text;
  }
  const auto is_long =
      Parse(R"({"id":"8","x":")" + std::string(100000, 'x') + "\"}");
  EXPECT_LT(is_long.status().message().size(), 400);
}

}  // namespace
}  // namespace dapd
