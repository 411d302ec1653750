#include "services/cli/serve/tool_calls.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ToolCallsTest, ReadsTheCallsBehindTheContent) {
  const AnswerWithCalls read = ReadToolCalls(
      "I look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, "
      "\"a\": 2}}\n</tool_call>\n<tool_call>{\"name\": \"now\"}</tool_call>\n");
  EXPECT_EQ(read.content, "I look.");
  ASSERT_EQ(read.calls.size(), 2u);
  EXPECT_EQ(read.calls[0].name, "add");
  EXPECT_EQ(read.calls[0].arguments, R"({"b":1,"a":2})");
  EXPECT_EQ(read.calls[1].name, "now");
  EXPECT_EQ(read.calls[1].arguments, "{}");
}

TEST(ToolCallsTest, KeepsAnotherFormAsContent) {
  for (const char* answer :
       {"no call",
        "<tool_call>{\"name\": \"add\"}",
        "<tool_call>not JSON</tool_call>",
        "<tool_call>{\"name\": 1}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": \"b\"}</tool_call>",
        "<tool_call>{\"name\": \"a\"}</tool_call> and more"}) {
    const AnswerWithCalls read = ReadToolCalls(answer);
    EXPECT_EQ(read.content, answer);
    EXPECT_TRUE(read.calls.empty()) << answer;
  }
}

}  // namespace
}  // namespace dapd
