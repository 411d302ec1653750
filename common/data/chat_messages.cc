#include "common/data/chat_messages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kSystem[] = "system";
constexpr char kUser[] = "user";
constexpr char kAssistant[] = "assistant";
constexpr char kTool[] = "tool";
// A message of ShareGPT that becomes an assistant message with tool_calls.
constexpr char kFunctionCall[] = "function_call";

struct RoleName {
  absl::string_view name;
  absl::string_view role;
};
constexpr std::array<RoleName, 12> kRoles = {{{"system", kSystem},
                                              {"developer", kSystem},
                                              {"user", kUser},
                                              {"human", kUser},
                                              {"assistant", kAssistant},
                                              {"gpt", kAssistant},
                                              {"chatgpt", kAssistant},
                                              {"model", kAssistant},
                                              {"tool", kTool},
                                              {"observation", kTool},
                                              {"function_response", kTool},
                                              {kFunctionCall, kFunctionCall}}};

absl::Status Bad(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

// Returns the value that a text holds, and any other value itself.
absl::StatusOr<OrderedJson> Unpacked(OrderedJson value,
                                     absl::string_view what) {
  if (!value.is_string()) return value;
  auto parsed = ParseOrderedJson(value.get_ref<const std::string&>(), "");
  if (parsed.ok()) return parsed;
  return Bad(absl::StrCat("holds a text that is not ", what));
}

void DropNulls(OrderedJson* value) {
  if (value->is_array()) {
    for (OrderedJson& item : *value) DropNulls(&item);
  } else if (value->is_object()) {
    for (auto item = value->begin(); item != value->end();) {
      if (item->is_null()) {
        item = value->erase(item);
      } else {
        DropNulls(&*item);
        ++item;
      }
    }
  }
}

// Takes the entry out of the message; null if there is none.
OrderedJson Take(OrderedJson* message, const char* key) {
  const auto found = message->find(key);
  if (found == message->end()) return nullptr;
  OrderedJson value = std::move(*found);
  message->erase(found);
  return value;
}

absl::StatusOr<std::string> ContentText(const OrderedJson& content,
                                        const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_array()) {
    std::string text;
    for (const OrderedJson& part : content) {
      const bool is_text = part.is_object() &&
                           part.value("type", "") == "text" &&
                           part.contains("text") && part.at("text").is_string();
      if (!is_text) {
        return Bad(absl::StrCat(
            where, " has a part that is not text; only text is read"));
      }
      text += part.at("text").get_ref<const std::string&>();
    }
    return text;
  }
  return Bad(absl::StrCat(
      where,
      " has ",
      content.is_null() ? "no content"
                        : absl::StrCat(content.type_name(), " as its content"),
      ", a text is needed"));
}

// Returns the tool_calls of a function_call's text: an object with name and
// arguments, or a list of such objects.
absl::StatusOr<OrderedJson> CallsOf(const std::string& text,
                                    const std::string& where) {
  auto parsed = ParseOrderedJson(text, "");
  OrderedJson calls = OrderedJson::array();
  if (parsed.ok() && parsed->is_object()) {
    calls.push_back(*std::move(parsed));
  } else if (parsed.ok() && parsed->is_array()) {
    calls = *std::move(parsed);
  }
  OrderedJson tool_calls = OrderedJson::array();
  for (const OrderedJson& call : calls) {
    if (!call.is_object() || !call.contains("name") ||
        !call.contains("arguments")) {
      tool_calls.clear();
      break;
    }
    tool_calls.push_back({{"type", "function"}, {"function", call}});
  }
  if (!tool_calls.empty()) return tool_calls;
  return Bad(
      absl::StrCat(where,
                   " is a function_call whose value is not the JSON of a call: "
                   "{\"name\": ..., \"arguments\": {...}}"));
}

absl::StatusOr<ChatMessage> ParseMessage(OrderedJson json,
                                         const std::string& where) {
  if (!json.is_object()) {
    return Bad(
        absl::StrCat(where, " is ", json.type_name(), ", not an object"));
  }
  DropNulls(&json);
  const bool is_sharegpt = !json.contains("role") && json.contains("from");
  const OrderedJson name = Take(&json, is_sharegpt ? "from" : "role");
  const OrderedJson content = Take(&json, is_sharegpt ? "value" : "content");
  // Only `value` is the content of ShareGPT's form.
  if (is_sharegpt) json.erase("content");
  if (!name.is_string()) {
    return Bad(absl::StrCat(where,
                            " has no role: a message needs the texts role and "
                            "content, or from and value"));
  }
  const auto& of = name.get_ref<const std::string&>();
  const auto* found = std::ranges::find(kRoles, of, &RoleName::name);
  if (found == kRoles.end()) {
    return Bad(absl::StrCat(where,
                            " has the role '",
                            Printable(of),
                            "'; system, user, assistant and tool are read"));
  }
  ChatMessage message{std::string(found->role), ""};
  if (message.role == kFunctionCall) {
    message.role = kAssistant;
    ASSIGN_OR_RETURN(const std::string text, ContentText(content, where));
    ASSIGN_OR_RETURN(json["tool_calls"], CallsOf(text, where));
  } else if (content.is_null() && message.role == kAssistant &&
             json.contains("tool_calls")) {
    OrderedJson more = OrderedJson::object();
    more["content"] = nullptr;
    more.update(json);
    json = std::move(more);
  } else {
    ASSIGN_OR_RETURN(message.content, ContentText(content, where));
  }
  if (!json.empty()) message.more = json.dump();
  return message;
}

bool MayFollow(absl::string_view role, absl::string_view previous) {
  if (role == kSystem) return previous.empty();
  if (role == kUser) {
    return previous.empty() || previous == kSystem || previous == kAssistant;
  }
  if (role == kAssistant) return previous == kUser || previous == kTool;
  return previous == kAssistant || previous == kTool;
}

absl::Status CheckOrder(const std::vector<ChatMessage>& messages) {
  absl::string_view previous;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (!MayFollow(role, previous)) {
      return Bad(absl::StrCat(
          "message ",
          i + 1,
          " is of ",
          role,
          previous.empty() ? ", and begins the conversation"
                           : absl::StrCat(", behind a message of ", previous),
          "; a conversation has at most one system message, at its beginning, "
          "and then user and assistant in turn, with results of tools between "
          "two messages of the assistant"));
    }
    previous = role;
  }
  return absl::OkStatus();
}

// Returns the text of the message that ends a conversation, as it is scored.
absl::StatusOr<std::string> AnswerOf(const ChatMessage& message) {
  if (message.more.empty()) return message.content;
  const OrderedJson more = OrderedJson::parse(message.more);
  if (more.contains("tool_calls") && !more.at("tool_calls").empty()) {
    return Bad(
        "the message that ends the conversation calls tools; a reference must "
        "be a text, so end the row with the assistant's answer");
  }
  const auto thoughts = more.find("reasoning_content");
  if (thoughts == more.end() || !thoughts->is_string() || thoughts->empty() ||
      *thoughts == "") {
    return message.content;
  }
  return absl::StrCat("<think>\n",
                      thoughts->get_ref<const std::string&>(),
                      "\n</think>\n\n",
                      message.content);
}

}  // namespace

absl::StatusOr<Conversation> ParseConversation(absl::string_view json) {
  ASSIGN_OR_RETURN(OrderedJson list, ParseOrderedJson(json, ""));
  ASSIGN_OR_RETURN(list, Unpacked(std::move(list), "the JSON of messages"));
  // Benchmarks of tool calls have a list of turns, each a list of messages.
  if (list.is_array() && list.size() == 1 && list[0].is_array()) {
    list = OrderedJson(std::move(list[0]));
  }
  if (!list.is_array() || list.empty()) {
    return Bad("holds no list of messages");
  }
  std::vector<ChatMessage> messages;
  for (OrderedJson& item : list) {
    ASSIGN_OR_RETURN(
        ChatMessage message,
        ParseMessage(std::move(item),
                     absl::StrCat("message ", messages.size() + 1)));
    messages.push_back(std::move(message));
  }
  RETURN_IF_ERROR(CheckOrder(messages));
  Conversation conversation;
  if (messages.back().role == kAssistant) {
    ASSIGN_OR_RETURN(conversation.answer, AnswerOf(messages.back()));
    messages.pop_back();
  }
  const auto last = std::ranges::find(
      messages.rbegin(), messages.rend(), kUser, &ChatMessage::role);
  if (last == messages.rend()) return Bad("has no message of a user");
  const auto user = last.base() - 1;
  auto begin = messages.begin();
  if (begin->role == kSystem) {
    conversation.system = begin->content;
    ++begin;
  }
  conversation.before.assign(begin, user);
  conversation.user = *user;
  conversation.after.assign(user + 1, messages.end());
  return conversation;
}

absl::StatusOr<std::string> ParseTools(absl::string_view json) {
  ASSIGN_OR_RETURN(OrderedJson list, ParseOrderedJson(json, ""));
  if (list.is_string() && list == "") return std::string();
  const bool is_text = list.is_string();
  ASSIGN_OR_RETURN(list, Unpacked(std::move(list), "the JSON of tools"));
  if (!list.is_array()) return Bad("holds no list of tool definitions");
  if (!is_text) DropNulls(&list);
  for (OrderedJson& tool : list) {
    ASSIGN_OR_RETURN(tool, Unpacked(std::move(tool), "the JSON of a tool"));
    if (!tool.is_object()) {
      return Bad(absl::StrCat(
          "holds a list of tools with ", tool.type_name(), ", not an object"));
    }
  }
  return list.empty() ? std::string() : list.dump();
}

}  // namespace dapd
