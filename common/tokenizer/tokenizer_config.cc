#include "common/tokenizer/tokenizer_config.h"

#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
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
// transformers before version 5 wrote the first list under the second name.
constexpr const char* kExtraTokens[] = {"extra_special_tokens",
                                        "additional_special_tokens"};
// transformers adds the tokens in this order.
constexpr const char* kRoles[] = {"bos_token",
                                  "eos_token",
                                  "unk_token",
                                  "sep_token",
                                  "pad_token",
                                  "cls_token",
                                  "mask_token"};
constexpr char kTokensById[] = "added_tokens_decoder";

// Returns the token that `value` stands for, a text or an object with
// "content"; null for any other value.
nlohmann::json AsToken(const nlohmann::json& value) {
  if (value.is_string()) return {{"content", value}};
  const bool is_token = value.is_object() && value.contains("content") &&
                        value["content"].is_string();
  return is_token ? value : nlohmann::json();
}

// Collects the special tokens of a folder, in the form of "added_tokens".
struct SpecialTokens {
  std::map<std::string, nlohmann::json> by_key;
  nlohmann::json unnamed = nlohmann::json::array();

  // A null removes the token.
  void Set(const std::string& key, const nlohmann::json& value) {
    const nlohmann::json token = AsToken(value);
    if (!token.is_null()) {
      by_key[key] = token;
    } else if (value.is_null()) {
      by_key.erase(key);
    }
  }

  // The tokens in `named` replace earlier tokens of the same key.
  void Add(const nlohmann::json& named) {
    for (const auto& [key, value] : named.items()) {
      if (absl::EndsWith(key, "_token")) Set(key, value);
    }
    for (const char* key : kExtraTokens) {
      if (!named.contains(key) || named[key].empty()) continue;
      if (named[key].is_object()) {
        for (const auto& [name, value] : named[key].items()) Set(name, value);
      } else if (named[key].is_array()) {
        for (const nlohmann::json& value : named[key]) {
          const nlohmann::json token = AsToken(value);
          if (token.is_null() || token["content"] == "") continue;
          unnamed.push_back(token);
        }
      }
      return;
    }
  }

  nlohmann::json Named() const {
    nlohmann::json list = nlohmann::json::array();
    // An entry without a text is not a token.
    const auto add = [&](const nlohmann::json& token) {
      if (token["content"] != "") list.push_back(token);
    };
    for (const char* key : kRoles) {
      const auto found = by_key.find(key);
      if (found != by_key.end()) add(found->second);
    }
    for (const auto& [key, token] : by_key) {
      if (!absl::c_linear_search(kRoles, key)) add(token);
    }
    return list;
  }
};

// `chat_template` is a text, or a list of named templates, of which "default"
// is used.
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

// Returns an empty object if there is no such file.
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
  SpecialTokens special;
  special.Add(json);
  if (json.contains(kTokensById)) {
    ASSIGN_OR_RETURN(config.added_tokens,
                     ListOfTokens(json[kTokensById], config.path));
  } else {
    ASSIGN_OR_RETURN(const nlohmann::json map,
                     ReadObject(JoinPath(folder, "special_tokens_map.json")));
    special.Add(map);
  }
  for (const auto& [key, token] : special.by_key) {
    config.special_tokens[key] = token["content"].get<std::string>();
  }
  config.named_tokens = special.Named();
  config.unnamed_tokens = std::move(special.unnamed);
  config.chat_template = TemplateText(json);
  const auto split = json.find("split_special_tokens");
  config.split_special_tokens =
      split != json.end() && split->is_boolean() && split->get<bool>();
  return config;
}

}  // namespace dapd
