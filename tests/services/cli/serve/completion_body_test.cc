#include "services/cli/serve/completion_body.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

class CompletionBodyTest : public ::testing::Test {
 protected:
  void SetUp() override { tokenizer_ = LoadSmallTokenizer(); }

  CompletionBody Make(const CompletionRequest& request) const {
    std::vector<TextPrompt> echo;
    if (request.echo) echo.push_back({.text = "Once", .ids = {79, 110}});
    CompletionBody body(request, *tokenizer_, "mine", echo);
    body.SetPolicy({true, 12, std::string(64, 'a')});
    return body;
  }

  static Json Parsed(const std::string& event) {
    EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n"));
    return Json::parse(event.substr(6));
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  CompletionRequest chat_ = {.kind = CompletionKind::kChat};
  CompletionRequest text_ = {.kind = CompletionKind::kText,
                             .prompts = {{.text = "Once"}}};
};

TEST_F(CompletionBodyTest, SaysWhichPolicyAnswered) {
  EXPECT_EQ(FingerprintOf({true, 0, ""}), "base");
  EXPECT_EQ(FingerprintOf({true, 12, std::string(64, 'a')}),
            "policy-12-aaaaaaaaaaaa");
  const Json body = Make(chat_).Whole({{.text = "b"}}, {});
  EXPECT_EQ(body["system_fingerprint"], "policy-12-aaaaaaaaaaaa");
}

TEST_F(CompletionBodyTest, WritesAChat) {
  const Json body =
      Make(chat_).Whole({{.text = "b", .end = CompletionEnd::kLength}}, {3, 4});
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "mine");
  EXPECT_EQ(body["choices"],
            Json::parse(R"([{"index": 0, "message": {"role": "assistant",
              "content": "b"}, "logprobs": null, "finish_reason": "length"}])"));
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
}

TEST_F(CompletionBodyTest, WritesTheLogprobsOfEachToken) {
  chat_.logprobs = text_.logprobs = 0;
  // The second token is a part of a character.
  const CompletionPiece piece = {
      .text = "a", .ids = {97, 195}, .logprobs = {-0.5F, -1.5F}};
  const Json content =
      Make(chat_).Whole({piece}, {})["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0],
            Json::parse(R"({"token": "a", "logprob": -0.5, "bytes": [97],
                            "top_logprobs": []})"));
  EXPECT_TRUE(content[1]["bytes"].is_null());
  const Json choice = Make(text_).Whole({piece}, {})["choices"][0];
  EXPECT_EQ(choice["text"], "a");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0, 1]"));
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"].is_null());
}

TEST_F(CompletionBodyTest, WritesTheScoresOfAPromptBeforeTheAnswers) {
  text_.logprobs = 1;
  text_.echo = true;
  text_.n = 2;
  const std::vector<CompletionPiece> answers = {
      {.prompt_scores = {{.logprob = -2.5F, .top = {98, -0.25F}}},
       .text = "a",
       .ids = {97},
       .logprobs = {-0.5F}},
      {.answer = 1, .text = "c", .ids = {99}, .logprobs = {-0.75F}}};
  const Json choices = Make(text_).Whole(answers, {})["choices"];
  EXPECT_EQ(choices[0]["text"], "Oncea");
  EXPECT_EQ(choices[0]["logprobs"], Json::parse(R"({
    "tokens": ["O", "n", "a"], "token_logprobs": [null, -2.5, -0.5],
    "top_logprobs": [null, {"n": -2.5, "b": -0.25}, {"a": -0.5}],
    "text_offset": [0, 1, 2]})"));
  EXPECT_EQ(choices[1]["logprobs"]["token_logprobs"],
            Json::parse("[null, -2.5, -0.75]"));
}

// A client cuts the text by these offsets, and counts characters.
TEST_F(CompletionBodyTest, CountsOffsetsInCharacters) {
  text_.logprobs = 0;
  // An e with an acute accent has two bytes, and two tokens.
  const std::vector<int32_t> ids = {97, 195, 169, 98};
  const CompletionPiece whole = {.text =
                                     "a\xC3\xA9"
                                     "b",
                                 .ids = ids,
                                 .logprobs = {-1, -1, -1, -1}};
  EXPECT_EQ(
      Make(text_).Whole({whole}, {})["choices"][0]["logprobs"]["text_offset"],
      Json::parse("[0, 1, 1, 2]"));
  CompletionBody stream = Make(text_);
  Json offsets = Json::array();
  for (const int32_t id : ids) {
    const Json event = Parsed(stream.Event({.ids = {id}, .logprobs = {-1}}));
    offsets.push_back(event["choices"][0]["logprobs"]["text_offset"][0]);
  }
  EXPECT_EQ(offsets, Json::parse("[0, 1, 1, 2]"));
}

// Both bytes are parts of characters, so their text is the same.
TEST_F(CompletionBodyTest, KeepsTheMostProbableOfTwoTokensWithOneText) {
  text_.logprobs = 1;
  text_.echo = true;
  std::vector<TextPrompt> echo = {{.text = "?", .ids = {79, 195}}};
  const CompletionBody body(text_, *tokenizer_, "mine", echo);
  const Json choice = body.Whole(
      {{.prompt_scores = {{.logprob = -2.5F, .top = {196, -0.25F}}}}},
      {})["choices"][0];
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1],
            Json::object({{"\xEF\xBF\xBD", -0.25}}));
}

TEST_F(CompletionBodyTest, WritesAStream) {
  CompletionBody body = Make(chat_);
  const Json opening = Parsed(body.Opening());
  EXPECT_EQ(opening["object"], "chat.completion.chunk");
  EXPECT_EQ(opening["choices"][0]["delta"]["role"], "assistant");
  const Json first = Parsed(body.Event({.text = "b"}));
  EXPECT_EQ(first["choices"][0]["delta"]["content"], "b");
  EXPECT_TRUE(first["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(first["id"], opening["id"]);
  const Json last = Parsed(body.Event({.end = CompletionEnd::kStop}));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  const Json usage = Parsed(body.UsageEvent({1, 2}));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
  EXPECT_EQ(CompletionBody::Closing(), "data: [DONE]\n\n");
}

TEST_F(CompletionBodyTest, ReadsToolCallsOnlyIfThereAreTools) {
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  const CompletionPiece piece = {.text = call, .end = CompletionEnd::kStop};
  EXPECT_EQ(Make(chat_).Whole({piece}, {})["choices"][0]["message"]["content"],
            call);
  chat_.render.tools = "[{}]";
  const Json choice = Make(chat_).Whole({piece}, {})["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");

  CompletionBody stream = Make(chat_);
  EXPECT_EQ(stream.Event({.text = call.substr(0, 20)}), "");
  const Json chunk = Parsed(
      stream.Event({.text = call.substr(20), .end = CompletionEnd::kStop}));
  EXPECT_EQ(chunk["choices"][0]["delta"]["tool_calls"][0]["index"], 0);
  EXPECT_EQ(chunk["choices"][0]["finish_reason"], "tool_calls");
}

}  // namespace
}  // namespace dapd
