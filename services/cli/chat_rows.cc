#include "services/cli/chat_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/data/chat_messages.h"

namespace dapd {
namespace {

using RowJson = nlohmann::ordered_json;

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
                                             "tool_choice"};

absl::Status RefuseKeysOfPrompts(const RowJson& row, const std::string& where) {
  for (const char* key : kRowKeysOfPrompts) {
    const auto found = row.find(key);
    if (found == row.end() || found->empty() || *found == "" ||
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

absl::StatusOr<std::string> TextOf(const RowJson& message,
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

absl::StatusOr<bool> FlagOf(const RowJson& row,
                            const char* key,
                            const std::string& where) {
  if (row[key].is_boolean()) return row[key].get<bool>();
  return DataError(
      absl::StrCat(where, ": ", key, " is neither true nor false"));
}

bool Holds(const RowJson& row, const char* key) {
  return row.contains(key) && !row[key].is_null();
}

// `where` names the message.
absl::StatusOr<ChatMessage> ParseMessage(const RowJson& json,
                                         const std::string& where) {
  ChatMessage message;
  ASSIGN_OR_RETURN(message.role, TextOf(json, "role", where));
  RowJson more = RowJson::object();
  if (Holds(json, "content") || !Holds(json, "tool_calls")) {
    ASSIGN_OR_RETURN(message.content, TextOf(json, "content", where));
  } else if (json.contains("content")) {
    more["content"] = nullptr;
  }
  for (const auto& item : json.items()) {
    if (item.key() == "role" || item.key() == "content") continue;
    if (!item.value().is_null()) more[item.key()] = item.value();
  }
  if (!more.empty()) message.more = more.dump();
  return message;
}

}  // namespace

absl::StatusOr<ChatRow> ParseChatRow(const RowJson& row,
                                     const std::string& where,
                                     UnreadRowKeys* unread) {
  if (!row.is_object() || !row.contains("messages") ||
      !row["messages"].is_array()) {
    return DataError(absl::StrCat(
        where, ": a row needs a list of messages under the key messages"));
  }
  RETURN_IF_ERROR(RefuseKeysOfPrompts(row, where));
  unread->Add(
      row,
      {"id", "messages", "tools", "add_generation_prompt", "enable_thinking"},
      where);
  ChatRow chat;
  for (const RowJson& message : row["messages"]) {
    const std::string at =
        absl::StrCat(where, ": message ", chat.messages.size() + 1);
    if (!message.is_object()) {
      return DataError(
          absl::StrCat(at, " is ", message.type_name(), ", not an object"));
    }
    ASSIGN_OR_RETURN(ChatMessage read, ParseMessage(message, at));
    chat.messages.push_back(std::move(read));
  }
  if (chat.messages.empty()) {
    return DataError(absl::StrCat(where, ": there is no message in messages"));
  }
  if (Holds(row, "tools")) {
    auto tools = ParseTools(row["tools"].dump());
    if (!tools.ok()) {
      return DataError(absl::StrCat(
          where, ": tools ", std::string(tools.status().message())));
    }
    chat.options.tools = *std::move(tools);
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
