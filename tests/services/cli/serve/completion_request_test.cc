#include "services/cli/serve/completion_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "services/cli/serve/api_error.h"

namespace dapd {
namespace {

constexpr char kMessage[] = R"("messages": [{"role": "user", "content": "a"}])";

absl::StatusOr<CompletionRequest> Chat(const std::string& more) {
  return ParseCompletionRequest(
      CompletionKind::kChat,
      absl::StrCat("{", kMessage, more.empty() ? "" : ", ", more, "}"));
}

absl::StatusOr<CompletionRequest> Text(const std::string& members) {
  return ParseCompletionRequest(CompletionKind::kText,
                                absl::StrCat("{", members, "}"));
}

// Returns the parameter that the error names.
std::string ParameterOf(const absl::StatusOr<CompletionRequest>& parsed) {
  if (parsed.ok()) return "no error";
  const auto body = ErrorBody(parsed.status());
  const auto& parameter = body["error"]["param"];
  return parameter.is_null() ? "none" : parameter.get<std::string>();
}

TEST(CompletionRequestTest, ReadsAChat) {
  const auto parsed = Chat(
      R"("model": "m", "max_tokens": 7, "n": 3, "seed": -1, "temperature": 0.5,
         "top_p": 0.9, "top_k": 5, "stop": "x", "logprobs": true,
         "stream": true, "stream_options": {"include_usage": true},
         "chat_template_kwargs": {"enable_thinking": false})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->model, "m");
  EXPECT_EQ(parsed->max_tokens, 7);
  EXPECT_EQ(parsed->n, 3);
  EXPECT_EQ(parsed->seed, ~uint64_t{0});
  EXPECT_EQ(parsed->sampling.temperature, 0.5);
  EXPECT_EQ(parsed->sampling.top_p, 0.9);
  EXPECT_EQ(parsed->sampling.top_k, 5);
  EXPECT_EQ(parsed->stop, std::vector<std::string>{"x"});
  EXPECT_EQ(parsed->logprobs, 0);
  EXPECT_TRUE(parsed->stream && parsed->include_usage);
  EXPECT_EQ(parsed->render.enable_thinking, false);
  EXPECT_TRUE(parsed->render.add_generation_prompt);
}

TEST(CompletionRequestTest, ReadsMessagesAsClientsWriteThem) {
  const auto parsed = ParseCompletionRequest(CompletionKind::kChat, R"({
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        {"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{\"y\": 1, \"x\": 2}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"}],
    "tools": [{"type": "function", "function": {"name": "f"}}]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->messages[0].content, "ab");
  EXPECT_EQ(parsed->messages[0].more, "");
  EXPECT_EQ(parsed->messages[1].more,
            R"({"content":null,"tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":{"y":1,"x":2}}}]})");
  EXPECT_EQ(parsed->messages[2].more, R"({"tool_call_id":"1"})");
  EXPECT_EQ(parsed->render.tools,
            R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(CompletionRequestTest, ReadsEveryFormOfAPrompt) {
  const auto one = Text(R"("prompt": "a")");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->prompts.at(0).text, "a");
  const auto texts = Text(R"("prompt": ["a", "b"], "n": 2)");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(texts->prompts.at(1).text, "b");
  EXPECT_EQ(texts->NumAnswers(), 4);
  const auto ids = Text(R"("prompt": [1, 2])");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->prompts.at(0).ids, (std::vector<int32_t>{1, 2}));
  const auto lists = Text(R"("prompt": [[1, 2], [3]])");
  ASSERT_TRUE(lists.ok());
  EXPECT_EQ(lists->prompts.at(1).ids, std::vector<int32_t>{3});
}

TEST(CompletionRequestTest, AcceptsParametersThatAskForNothing) {
  const auto parsed = Chat(
      R"("frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {},
         "response_format": {"type": "text"}, "user": "me", "top_logprobs": 0,
         "tool_choice": "auto", "stop": null, "max_tokens": null,
         "min_p": null, "unheard_of": null)");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
}

TEST(CompletionRequestTest, NamesTheParameterOfAnError) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"frequency_penalty", "0.5"},
      {"logit_bias", R"({"5": 1})"},
      {"response_format", R"({"type": "json_object"})"},
      {"top_logprobs", "3"},
      {"tool_choice", R"("required")"},
      {"unheard_of", "1"},
      {"temperature", "-1"},
      {"temperature", R"("hot")"},
      {"top_p", "0"},
      {"n", "0"},
      {"n", "1000000"},
      {"n", "1.5"},
      {"max_tokens", "0"},
      {"max_completion_tokens", "true"},
      {"seed", "0.5"},
      {"stop", "[1]"},
      {"stop", R"([""])"},
      {"stream", "1"},
      {"stream_options", R"({"more": 1})"},
      {"chat_template_kwargs", R"({"other": true})"},
      {"logprobs", "2"},
      {"tools", "[1]"},
      {"model", "1"},
      {"prompt", R"("a")"}};
  for (const auto& [name, value] : wrong) {
    EXPECT_EQ(ParameterOf(Chat(absl::StrCat("\"", name, "\": ", value))), name)
        << value;
  }
}

TEST(CompletionRequestTest, RefusesMessagesThatCannotBeRendered) {
  for (const char* messages :
       {R"([])",
        R"("hello")",
        R"([1])",
        R"([{"content": "a"}])",
        R"([{"role": "user"}])",
        R"([{"role": "user", "content": null}])",
        R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "image_url"}]}])"}) {
    EXPECT_EQ(ParameterOf(ParseCompletionRequest(
                  CompletionKind::kChat,
                  absl::StrCat("{\"messages\": ", messages, "}"))),
              "messages")
        << messages;
  }
}

TEST(CompletionRequestTest, RefusesPromptsThatItCannotAnswer) {
  for (const char* prompt : {"[]",
                             "1",
                             "\"\"",
                             "[\"\"]",
                             "[[]]",
                             "[1, \"a\"]",
                             "[-1]",
                             "[1.5]",
                             "[{}]"}) {
    EXPECT_EQ(ParameterOf(Text(absl::StrCat("\"prompt\": ", prompt))), "prompt")
        << prompt;
  }
  EXPECT_EQ(ParameterOf(Text("")), "prompt");
  EXPECT_EQ(ParameterOf(Text(R"("prompt": "a", "logprobs": 2)")), "logprobs");
  EXPECT_EQ(ParameterOf(Text(R"("prompt": ["a", "b"], "n": 100)")), "n");
}

// The most probable token is known of prompts and of greedy answers.
TEST(CompletionRequestTest, SaysWhereTheMostProbableTokenIsKnown) {
  const auto parameter_of = [](const std::string& more) {
    return ParameterOf(Text(absl::StrCat(R"("prompt": "a", )", more)));
  };
  EXPECT_EQ(parameter_of(R"("logprobs": 1)"), "logprobs");
  EXPECT_EQ(parameter_of(R"("logprobs": 1, "temperature": 0)"), "no error");
  EXPECT_EQ(parameter_of(R"("logprobs": 1, "echo": true)"), "logprobs");
  EXPECT_EQ(parameter_of(R"("logprobs": 1, "echo": true, "max_tokens": 0)"),
            "no error");
  EXPECT_EQ(parameter_of(R"("logprobs": 0, "echo": true)"), "no error");
  EXPECT_EQ(parameter_of(R"("logprobs": 0, "echo": true, "stream": true)"),
            "stream");
  EXPECT_EQ(parameter_of(R"("max_tokens": 0)"), "max_tokens");
}

TEST(CompletionRequestTest, RefusesWhatIsNoObject) {
  for (const char* body :
       {"", "[]", "{", "{} {}", "\xff", "{\"n\":1,\"n\":1}"}) {
    const auto parsed = ParseCompletionRequest(CompletionKind::kChat, body);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << body;
    EXPECT_EQ(HttpStatusOf(parsed.status()), 400);
  }
}

}  // namespace
}  // namespace dapd
