// A conversation in a JSON Lines row, as `render` and `generate` read it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/tokenizer/chat_template.h"

namespace dapd {

struct ChatRow {
  std::vector<ChatMessage> messages;
  ChatRenderOptions options;
};

// {"messages": [{"role", "content"}], "add_generation_prompt"?,
// "enable_thinking"?}; an error leads with `where`.
absl::StatusOr<ChatRow> ParseChatRow(const nlohmann::json& row,
                                     const std::string& where);

}  // namespace dapd
