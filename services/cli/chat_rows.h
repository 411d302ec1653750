// A conversation in a JSON Lines row, which `render` and `generate` read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/unread_row_keys.h"
#include "common/tokenizer/chat_template.h"

namespace dapd {

struct ChatRow {
  std::vector<ChatMessage> messages;
  ChatRenderOptions options;
};

// Parses {"messages": [{"role", "content"}], "tools"?,
// "add_generation_prompt"?, "enable_thinking"?}; errors begin with `where`. The
// further keys of a message, such as "tool_calls" and "reasoning_content", go
// to the template as they are, except for keys of null. Beside tool_calls the
// content may be null or missing. Other keys of the row that templates read or
// that stand for a message, such as "documents", are an error unless they are
// empty, since templates do not get them. Any other key is added to `unread`.
absl::StatusOr<ChatRow> ParseChatRow(const nlohmann::ordered_json& row,
                                     const std::string& where,
                                     UnreadRowKeys* unread);

// Calls ChatTemplate::Render; errors begin with `where`.
absl::StatusOr<std::string> RenderChatRow(const ChatTemplate& chat_template,
                                          const ChatRow& chat,
                                          const std::string& where);

}  // namespace dapd
