#include "common/data/chat_messages.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Conversation Parsed(const std::string& json) {
  const auto conversation = ParseConversation(json);
  EXPECT_TRUE(conversation.ok()) << conversation.status();
  return conversation.value_or(Conversation());
}

std::string Refusal(const std::string& json) {
  return std::string(ParseConversation(json).status().message());
}

// Returns a conversation of messages with these roles.
std::string OfRoles(const std::vector<std::string>& roles) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& role : roles) {
    list.push_back({{"role", role}, {"content", role}});
  }
  return list.dump();
}

TEST(ChatMessagesTest, TheLastUserMessageAndTheAnswerAreFound) {
  const Conversation chat = Parsed(R"([
    {"role": "system", "content": "S"}, {"role": "user", "content": "1"},
    {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"},
    {"role": "assistant", "content": "4"}])");
  EXPECT_EQ(chat.system, "S");
  EXPECT_THAT(
      chat.before,
      ElementsAre(ChatMessage{"user", "1"}, ChatMessage{"assistant", "2"}));
  EXPECT_EQ(chat.user, (ChatMessage{"user", "3"}));
  EXPECT_THAT(chat.after, ElementsAre());
  EXPECT_EQ(chat.answer, "4");
  EXPECT_EQ(Parsed(OfRoles({"user"})).answer, std::nullopt);
  EXPECT_EQ(Parsed(OfRoles({"developer", "user"})).system, "developer");
}

TEST(ChatMessagesTest, ToolCallsAndResultsStandBehindTheProblem) {
  const Conversation chat = Parsed(R"([
    {"role": "user", "content": "Weather?", "name": "Ada"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
     "function": {"name": "f", "arguments": {"z": 1, "a": null}}}]},
    {"role": "tool", "content": "sun", "tool_call_id": "1"},
    {"role": "assistant", "content": "It is sunny."}])");
  EXPECT_EQ(chat.user.more, R"({"name":"Ada"})");
  ASSERT_EQ(chat.after.size(), 2u);
  EXPECT_EQ(chat.after[0].more,
            R"({"content":null,"tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":{"z":1}}}]})");
  EXPECT_EQ(chat.after[1],
            (ChatMessage{"tool", "sun", R"({"tool_call_id":"1"})"}));
  EXPECT_EQ(chat.answer, "It is sunny.");
}

TEST(ChatMessagesTest, ShareGptIsReadLikeOpenAi) {
  const Conversation chat = Parsed(R"([
    {"from": "system", "value": "S"}, {"from": "human", "value": "Q"},
    {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
    {"from": "observation", "value": "r"}, {"from": "gpt", "value": "A"}])");
  EXPECT_EQ(chat.system, "S");
  EXPECT_EQ(chat.user, (ChatMessage{"user", "Q"}));
  ASSERT_EQ(chat.after.size(), 2u);
  EXPECT_EQ(chat.after[0].role, "assistant");
  EXPECT_EQ(chat.after[0].more,
            R"({"tool_calls":[{"type":"function","function":)"
            R"({"name":"f","arguments":{}}}]})");
  EXPECT_EQ(chat.after[1], (ChatMessage{"tool", "r"}));
  EXPECT_EQ(chat.answer, "A");
}

TEST(ChatMessagesTest, OtherFormsOfContentsAreRead) {
  EXPECT_EQ(Parsed(R"("[{\"role\": \"user\", \"content\": \"Q\"}]")").user,
            (ChatMessage{"user", "Q"}));
  EXPECT_EQ(Parsed(R"([[{"role": "user", "content": "Q"}]])").user,
            (ChatMessage{"user", "Q"}));
  EXPECT_EQ(Parsed(R"([{"role": "user", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])")
                .user,
            (ChatMessage{"user", "ab"}));
  EXPECT_EQ(Parsed(R"([{"role": "user", "content": "Q"}, {"role": "assistant",
      "reasoning_content": "Hm.", "content": "A", "tool_calls": null}])")
                .answer,
            "<think>\nHm.\n</think>\n\nA");
}

TEST(ChatMessagesTest, AnImpossibleOrderIsNamed) {
  for (const auto& [roles, said] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"user", "system"}, "message 2 is of system, behind a message of"},
           {{"system", "system"}, "message 2 is of system"},
           {{"assistant", "user"}, "message 1 is of assistant, and begins"},
           {{"tool"}, "message 1 is of tool, and begins"},
           {{"user", "user"}, "message 2 is of user, behind a message of user"},
           {{"user", "assistant", "assistant"}, "message 3 is of assistant"},
           {{"user", "tool"}, "message 2 is of tool, behind a message of user"},
           {{"user", "assistant", "tool", "user"}, "message 4 is of user"},
           {{"system"}, "has no message of a user"},
           {{"user", "critic"}, "message 2 has the role 'critic'; system, "}}) {
    EXPECT_THAT(Refusal(OfRoles(roles)), HasSubstr(said));
  }
  EXPECT_EQ(Refusal(OfRoles({"user", "assistant", "tool", "tool"})), "");
}

TEST(ChatMessagesTest, WhatIsNoConversationIsOneMessage) {
  for (const auto& [json, said] :
       std::vector<std::pair<std::string, std::string>>{
           {"[]", "holds no list of messages"},
           {"{}", "holds no list of messages"},
           {"\"hello\"", "holds a text that is not the JSON of messages"},
           {"[7]", "message 1 is number, not an object"},
           {R"([{"content": "x"}])", "message 1 has no role"},
           {R"([{"role": "user"}])", "message 1 has no content, a text is"},
           {R"([{"role": "user", "content": 7}])", "message 1 has number as"},
           {R"([{"role": "user", "content": [{"type": "image"}]}])",
            "message 1 has a part that is not text"},
           {R"~([{"from": "human", "value": "Q"},
                 {"from": "function_call", "value": "f()"}])~",
            "message 2 is a function_call whose value is not the JSON"},
           {R"([{"role": "user", "content": "Q"},
                {"role": "assistant", "tool_calls": [{}]}])",
            "the message that ends the conversation calls tools"}}) {
    EXPECT_THAT(Refusal(json), HasSubstr(said));
  }
}

TEST(ChatMessagesTest, ToolsKeepTheOrderOfTheirKeys) {
  EXPECT_EQ(ParseTools(R"([{"name": "f", "b": 1, "a": null}])").value(),
            R"([{"name":"f","b":1}])");
  EXPECT_EQ(ParseTools(R"("[{\"name\": \"f\", \"a\": null}]")").value(),
            R"([{"name":"f","a":null}])");
  EXPECT_EQ(ParseTools(R"(["{\"name\": \"f\"}"])").value(),
            R"([{"name":"f"}])");
  EXPECT_EQ(ParseTools("[]").value(), "");
  EXPECT_EQ(ParseTools("\"\"").value(), "");
  EXPECT_THAT(std::string(ParseTools("{}").status().message()),
              HasSubstr("holds no list of tool definitions"));
  EXPECT_THAT(std::string(ParseTools("[7]").status().message()),
              HasSubstr("holds a list of tools with number"));
}

}  // namespace
}  // namespace dapd
