#include "services/cli/chat_rows.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"

namespace dapd {

absl::StatusOr<ChatRow> ParseChatRow(const nlohmann::json& row,
                                     const std::string& where) {
  ChatRow chat;
  try {
    for (const nlohmann::json& message : row.at("messages")) {
      chat.messages.push_back({message.at("role").get<std::string>(),
                               message.at("content").get<std::string>()});
    }
    chat.options.add_generation_prompt =
        row.value("add_generation_prompt", false);
    if (row.contains("enable_thinking")) {
      chat.options.enable_thinking = row["enable_thinking"].get<bool>();
    }
  } catch (const nlohmann::json::exception& error) {
    return DataError(absl::StrCat(
        where,
        ": a row needs messages, each with the strings role and content: ",
        error.what()));
  }
  return chat;
}

}  // namespace dapd
