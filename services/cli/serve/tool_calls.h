// Reads tool calls out of an answer.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

struct AnswerWithCalls {
  std::string content;  // the text before the first call
  std::vector<ToolCall> calls;
};

// Reads the form of Qwen2.5 and Qwen3 (and of Hermes): after the content one or
// more of <tool_call>{"name": ..., "arguments": {...}}</tool_call>. If the
// answer has another form, it is all content, since a call that is read wrongly
// would be worse than one that is not read.
AnswerWithCalls ReadToolCalls(absl::string_view answer);

}  // namespace dapd
