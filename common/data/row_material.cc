#include "common/data/row_material.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson MessageJson(const ChatMessage& message) {
  OrderedJson json = {{"role", message.role}, {"content", message.content}};
  if (!message.more.empty()) json.update(OrderedJson::parse(message.more));
  return json;
}

OrderedJson MessagesJson(const std::vector<ChatMessage>& messages) {
  OrderedJson list = OrderedJson::array();
  for (const ChatMessage& message : messages) {
    list.push_back(MessageJson(message));
  }
  return list;
}

absl::Status NotOfThisForm(absl::string_view key, absl::string_view need) {
  return absl::InvalidArgumentError(
      absl::StrCat("material: '", key, "' is not ", need));
}

absl::StatusOr<ChatMessage> ParseMaterialMessage(const OrderedJson& json,
                                                 const std::string& key) {
  const char* need = "a list of messages, each with the texts role and content";
  if (!json.is_object() || !json.contains("role") ||
      !json.at("role").is_string() || !json.contains("content")) {
    return NotOfThisForm(key, need);
  }
  ChatMessage message;
  OrderedJson more = OrderedJson::object();
  for (const auto& item : json.items()) {
    if (item.key() == "role") {
      message.role = item.value().get<std::string>();
    } else if (item.key() == "content" && item.value().is_string()) {
      message.content = item.value().get<std::string>();
    } else {
      more[item.key()] = item.value();
    }
  }
  if (more.contains("content") && !more.at("content").is_null()) {
    return NotOfThisForm(key, need);
  }
  if (!more.empty()) message.more = more.dump();
  return message;
}

absl::Status ParseMaterialMessages(const OrderedJson& json,
                                   const std::string& key,
                                   std::vector<ChatMessage>* messages) {
  if (!json.is_array()) return NotOfThisForm(key, "a list of messages");
  for (const OrderedJson& item : json) {
    ASSIGN_OR_RETURN(ChatMessage message, ParseMaterialMessage(item, key));
    messages->push_back(std::move(message));
  }
  return absl::OkStatus();
}

}  // namespace

OrderedJson MaterialJson(const RowMaterial& material) {
  OrderedJson json = OrderedJson::object();
  if (!material.columns.empty()) {
    OrderedJson& columns = json["columns"] = OrderedJson::object();
    for (const auto& [name, text] : material.columns) columns[name] = text;
  }
  if (material.system.has_value()) json["system"] = *material.system;
  if (!material.before.empty()) json["before"] = MessagesJson(material.before);
  if (!material.after.empty()) json["after"] = MessagesJson(material.after);
  if (!material.user_more.empty()) {
    json["user"] = OrderedJson::parse(material.user_more);
  }
  if (!material.tools.empty())
    json["tools"] = OrderedJson::parse(material.tools);
  return json;
}

absl::StatusOr<std::shared_ptr<const RowMaterial>> ParseMaterial(
    const OrderedJson& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError("material is not an object");
  }
  auto material = std::make_shared<RowMaterial>();
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const OrderedJson& value = item.value();
    if (key == "columns" && value.is_object()) {
      for (const auto& column : value.items()) {
        if (!column.value().is_string()) {
          return NotOfThisForm(key, "an object of texts");
        }
        material->columns[column.key()] = column.value().get<std::string>();
      }
    } else if (key == "system" && value.is_string()) {
      material->system = value.get<std::string>();
    } else if (key == "before") {
      RETURN_IF_ERROR(ParseMaterialMessages(value, key, &material->before));
    } else if (key == "after") {
      RETURN_IF_ERROR(ParseMaterialMessages(value, key, &material->after));
    } else if (key == "user" && value.is_object()) {
      material->user_more = value.dump();
    } else if (key == "tools" && value.is_array()) {
      material->tools = value.dump();
    } else {
      return NotOfThisForm(
          key,
          "a part of it: columns and user are objects, system is a text, "
          "before, after and tools are lists");
    }
  }
  return material;
}

std::string PromptSource::Key() const {
  if (material == nullptr) return std::string(problem);
  return absl::StrCat(
      problem, absl::string_view("\0", 1), MaterialJson(*material).dump());
}

}  // namespace dapd
