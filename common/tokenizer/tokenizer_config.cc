#include "common/tokenizer/tokenizer_config.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxConfigBytes = 64 << 20;

// A text, or an object with "content".
std::map<std::string, std::string> SpecialTokens(const nlohmann::json& config) {
  std::map<std::string, std::string> tokens;
  for (const char* key : {"bos_token",
                          "eos_token",
                          "unk_token",
                          "sep_token",
                          "pad_token",
                          "cls_token",
                          "mask_token"}) {
    if (!config.contains(key)) continue;
    const nlohmann::json& value = config[key];
    if (value.is_string()) {
      tokens[key] = value.get<std::string>();
    } else if (value.is_object() && value.contains("content") &&
               value["content"].is_string()) {
      tokens[key] = value["content"].get<std::string>();
    }
  }
  return tokens;
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

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& folder) {
  TokenizerConfig config{.path = JoinPath(folder, "tokenizer_config.json")};
  if (!FileExists(config.path)) return config;
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(config.path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(bytes, config.path));
  if (!json.is_object()) {
    return DataError(absl::StrCat(config.path, " is not a JSON object"));
  }
  config.special_tokens = SpecialTokens(json);
  config.chat_template = TemplateText(json);
  return config;
}

}  // namespace dapd
