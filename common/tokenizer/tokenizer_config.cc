#include "common/tokenizer/tokenizer_config.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxConfigBytes = 64 << 20;
constexpr char kExtraTokens[] = "extra_special_tokens";
constexpr char kTokensById[] = "added_tokens_decoder";

// A text, or an object with "content"; null takes the token away.
void SetToken(const std::string& key,
              const nlohmann::json& value,
              std::map<std::string, std::string>* tokens) {
  if (value.is_string()) {
    (*tokens)[key] = value.get<std::string>();
  } else if (value.is_object() && value.contains("content") &&
             value["content"].is_string()) {
    (*tokens)[key] = value["content"].get<std::string>();
  } else if (value.is_null()) {
    tokens->erase(key);
  }
}

// Those that `named` names win over `tokens`.
void AddSpecialTokens(const nlohmann::json& named,
                      std::map<std::string, std::string>* tokens) {
  for (const auto& [key, value] : named.items()) {
    if (absl::EndsWith(key, "_token")) SetToken(key, value, tokens);
  }
  // A list of them has no names.
  if (!named.contains(kExtraTokens) || !named[kExtraTokens].is_object()) return;
  for (const auto& [key, value] : named[kExtraTokens].items()) {
    SetToken(key, value, tokens);
  }
}

// A text, or a list of named templates of which "default" is meant.
std::string TemplateText(const nlohmann::json& config) {
  if (!config.contains("chat_template")) return "";
  const nlohmann::json& value = config["chat_template"];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const nlohmann::json& entry : value) {
    if (entry.is_object() && entry.contains("name") &&
        entry["name"] == "default" && entry.contains("template") &&
        entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return "";
}

absl::StatusOr<nlohmann::json> ListOfTokens(const nlohmann::json& by_id,
                                            const std::string& where) {
  std::map<int64_t, nlohmann::json> sorted;
  for (const auto& [id, token] : by_id.items()) {
    int64_t number = 0;
    if (!by_id.is_object() || !token.is_object() ||
        !absl::SimpleAtoi(id, &number)) {
      return DataError(absl::StrCat(
          where, ": added_tokens_decoder has no tokens by their ids"));
    }
    sorted[number] = token;
  }
  nlohmann::json list = nlohmann::json::array();
  for (auto& [id, token] : sorted) {
    token["id"] = id;
    list.push_back(std::move(token));
  }
  return list;
}

// An empty object if there is no such file.
absl::StatusOr<nlohmann::json> ReadObject(const std::string& path) {
  if (!FileExists(path)) return nlohmann::json::object();
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(nlohmann::json json, ParseJson(bytes, path));
  if (!json.is_object()) {
    return DataError(absl::StrCat(path, " is not a JSON object"));
  }
  return json;
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder) {
  TokenizerConfig config{.path = JoinPath(folder, "tokenizer_config.json")};
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadObject(config.path));
  AddSpecialTokens(json, &config.special_tokens);
  if (json.contains(kTokensById)) {
    ASSIGN_OR_RETURN(config.added_tokens,
                     ListOfTokens(json[kTokensById], config.path));
  } else {
    ASSIGN_OR_RETURN(const nlohmann::json map,
                     ReadObject(JoinPath(folder, "special_tokens_map.json")));
    AddSpecialTokens(map, &config.special_tokens);
  }
  config.chat_template = TemplateText(json);
  const auto split = json.find("split_special_tokens");
  config.split_special_tokens =
      split != json.end() && split->is_boolean() && split->get<bool>();
  return config;
}

}  // namespace dapd
