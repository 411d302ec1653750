#include "services/cli/chat_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Keys that transformers passes to a template beside the messages, or that
// other programs put into a prompt.
constexpr const char* kRowKeysOfPrompts[] = {"builtin_tools",
                                             "chat_template",
                                             "chat_template_kwargs",
                                             "continue_final_message",
                                             "documents",
                                             "functions",
                                             "prompt",
                                             "reasoning_effort",
                                             "system",
                                             "system_prompt",
                                             "template_kwargs",
                                             "tool_choice",
                                             "tools"};

// Keys of a message that templates read beside role and content.
constexpr const char* kMessageKeysOfPrompts[] = {"audio",
                                                 "channel",
                                                 "function_call",
                                                 "image",
                                                 "images",
                                                 "name",
                                                 "prefix",
                                                 "reasoning",
                                                 "reasoning_content",
                                                 "recipient",
                                                 "thinking",
                                                 "tool_call_id",
                                                 "tool_calls",
                                                 "tool_plan",
                                                 "tool_responses",
                                                 "tools"};

// `where` names the row or the message.
template <typename Keys>
absl::Status RefuseKeys(const nlohmann::json& object,
                        const Keys& keys,
                        const std::string& where) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found == object.end() || found->empty() || *found == "" ||
        *found == false) {
      continue;
    }
    return DataError(
        absl::StrCat(where,
                     ": '",
                     key,
                     "' would change the prompt and is not handed to the chat "
                     "template; leave it out, or put the text that it stands "
                     "for into a message's content"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOf(const nlohmann::json& message,
                                   const char* key,
                                   const std::string& where) {
  const auto found = message.find(key);
  if (found != message.end() && found->is_string()) {
    return found->get<std::string>();
  }
  return DataError(
      absl::StrCat(where,
                   " has ",
                   found == message.end() ? "no" : found->type_name(),
                   " ",
                   found == message.end() ? "" : "as its ",
                   key,
                   ": a message needs role and content, each a string"));
}

absl::StatusOr<bool> FlagOf(const nlohmann::json& row,
                            const char* key,
                            const std::string& where) {
  if (row[key].is_boolean()) return row[key].get<bool>();
  return DataError(
      absl::StrCat(where, ": ", key, " is neither true nor false"));
}

bool Holds(const nlohmann::json& row, const char* key) {
  return row.contains(key) && !row[key].is_null();
}

}  // namespace

absl::StatusOr<ChatRow> ParseChatRow(const nlohmann::json& row,
                                     const std::string& where,
                                     UnreadRowKeys* unread) {
  if (!row.is_object() || !row.contains("messages") ||
      !row["messages"].is_array()) {
    return DataError(absl::StrCat(
        where, ": a row needs a list of messages under the key messages"));
  }
  RETURN_IF_ERROR(RefuseKeys(row, kRowKeysOfPrompts, where));
  unread->Add(row,
              {"id", "messages", "add_generation_prompt", "enable_thinking"},
              where);
  ChatRow chat;
  for (const nlohmann::json& message : row["messages"]) {
    const std::string at =
        absl::StrCat(where, ": message ", chat.messages.size() + 1);
    if (!message.is_object()) {
      return DataError(
          absl::StrCat(at, " is ", message.type_name(), ", not an object"));
    }
    RETURN_IF_ERROR(RefuseKeys(message, kMessageKeysOfPrompts, at));
    unread->Add(message, {"role", "content"}, where, "messages[].");
    ChatMessage& read = chat.messages.emplace_back();
    ASSIGN_OR_RETURN(read.role, TextOf(message, "role", at));
    ASSIGN_OR_RETURN(read.content, TextOf(message, "content", at));
  }
  if (chat.messages.empty()) {
    return DataError(absl::StrCat(where, ": there is no message in messages"));
  }
  if (Holds(row, "add_generation_prompt")) {
    ASSIGN_OR_RETURN(chat.options.add_generation_prompt,
                     FlagOf(row, "add_generation_prompt", where));
  }
  if (Holds(row, "enable_thinking")) {
    ASSIGN_OR_RETURN(chat.options.enable_thinking,
                     FlagOf(row, "enable_thinking", where));
  }
  return chat;
}

absl::StatusOr<std::string> RenderChatRow(const ChatTemplate& chat_template,
                                          const ChatRow& chat,
                                          const std::string& where) {
  auto text = chat_template.Render(chat.messages, chat.options);
  if (text.ok()) return text;
  return DataError(
      absl::StrCat(where, ": ", std::string(text.status().message())));
}

}  // namespace dapd
