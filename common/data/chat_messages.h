// Reads the conversation of a row: the column data.messages_column.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/chat_template.h"

namespace dapd {

// A conversation, split at its last user message and before its answer.
struct Conversation {
  std::optional<std::string> system;
  std::vector<ChatMessage> before;  // behind `system`
  ChatMessage user;                 // the last user message
  std::vector<ChatMessage> after;   // tool calls and their results
  // The content of the assistant message that ends the conversation, with its
  // `reasoning_content` before it as a <think> block; nothing if another
  // message ends it.
  std::optional<std::string> answer;
};

// Parses the JSON text of a conversation: a list of messages, a list that holds
// only such a list, or a text that holds one. A message has the keys of
// OpenAI's form, `role` and `content`, or of ShareGPT's form, `from` and
// `value`, whose human and gpt are user and assistant, whose observation is
// tool, and whose function_call is an assistant message with tool_calls. A
// content may be a list of text parts, and null beside tool_calls. All further
// keys of a message go to the chat template (ChatMessage::more); a key of null
// counts as absent, since Parquet and Arrow give every message the keys of all.
//
// The messages must come in an order in which they can have been said: a system
// message only at the beginning, then user and assistant in turn; behind an
// assistant message also results of tools, which end with an assistant message
// or with the conversation. Returns INVALID_ARGUMENT for any other order, which
// names the message, for an answer that consists of tool calls, and for
// contents that are not text.
absl::StatusOr<Conversation> ParseConversation(absl::string_view json);

// Parses the JSON text of the column data.tools_column: a list of tool
// definitions, each an object or the JSON text of one, or a text that holds
// such a list. Returns it as JSON text for ChatRenderOptions::tools, empty for
// an empty list. A key of null counts as absent unless it stands in a text.
absl::StatusOr<std::string> ParseTools(absl::string_view json);

}  // namespace dapd
