#include "common/tokenizer/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/interpreter.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;
constexpr uint64_t kMaxConfigBytes = 64 << 20;

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(std::string path,
                    jinja::Block block,
                    jinja::Dict special_tokens)
      : path_(std::move(path)),
        block_(std::move(block)),
        special_tokens_(std::move(special_tokens)) {}

  absl::StatusOr<std::string> Render(
      const std::vector<ChatMessage>& messages,
      const ChatRenderOptions& options) const override {
    jinja::List list;
    for (const ChatMessage& message : messages) {
      RETURN_IF_ERROR(DecodeUtf8(message.role).status());
      RETURN_IF_ERROR(DecodeUtf8(message.content).status());
      list.emplace_back(
          jinja::Dict{{"role", jinja::Value(message.role)},
                      {"content", jinja::Value(message.content)}});
    }
    jinja::Dict variables = special_tokens_;
    variables.emplace_back("messages", jinja::Value(std::move(list)));
    variables.emplace_back("tools", jinja::Value::MakeNone());
    variables.emplace_back("documents", jinja::Value::MakeNone());
    variables.emplace_back("add_generation_prompt",
                           jinja::Value(options.add_generation_prompt));
    if (options.enable_thinking.has_value()) {
      variables.emplace_back("enable_thinking",
                             jinja::Value(*options.enable_thinking));
    }
    auto text = jinja::Run(block_, variables, {});
    if (text.ok()) return text;
    return WithExitCode(
        absl::Status(text.status().code(),
                     absl::StrCat(path_,
                                  ": chat template, ",
                                  std::string(text.status().message()))),
        ExitCode::kData);
  }

 private:
  const std::string path_;
  const jinja::Block block_;
  const jinja::Dict special_tokens_;
};

// bos_token and so on, which templates may print: a text or an object with
// "content".
jinja::Dict SpecialTokens(const nlohmann::json& config) {
  jinja::Dict tokens;
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
      tokens.emplace_back(key, jinja::Value(value.get<std::string>()));
    } else if (value.is_object() && value.contains("content") &&
               value["content"].is_string()) {
      tokens.emplace_back(key,
                          jinja::Value(value["content"].get<std::string>()));
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

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Load(
    const std::string& folder) {
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  nlohmann::json config = nlohmann::json::object();
  if (FileExists(config_path)) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadFile(config_path, kMaxConfigBytes));
    ASSIGN_OR_RETURN(config, ParseJson(bytes, config_path));
    if (!config.is_object()) {
      return DataError(absl::StrCat(config_path, " is no JSON object"));
    }
  }
  std::string path = JoinPath(folder, "chat_template.jinja");
  std::string source;
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(source, ReadFile(path, kMaxTemplateBytes));
  } else {
    path = config_path;
    source = TemplateText(config);
  }
  if (source.empty()) {
    return DataError(
        absl::StrCat(folder,
                     " has no chat template: neither chat_template.jinja nor "
                     "chat_template in tokenizer_config.json"));
  }
  auto block = jinja::Parse(source);
  if (!block.ok()) {
    return DataError(absl::StrCat(
        path, ": chat template, ", std::string(block.status().message())));
  }
  return std::make_unique<const JinjaChatTemplate>(
      path, *std::move(block), SpecialTokens(config));
}

}  // namespace dapd
