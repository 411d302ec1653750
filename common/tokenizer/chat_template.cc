#include "common/tokenizer/chat_template.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/interpreter.h"
#include "common/tokenizer/jinja/json_value.h"
#include "common/tokenizer/jinja/parser.h"
#include "common/tokenizer/tokenizer_config.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

absl::StatusOr<nlohmann::ordered_json> ParsePart(const std::string& text,
                                                 const std::string& what,
                                                 bool is_list) {
  auto json = ParseOrderedJson(text, what);
  if (!json.ok()) return absl::InvalidArgumentError(json.status().message());
  if (is_list ? json->is_array() : json->is_object()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not a JSON ", is_list ? "list" : "object"));
}

// Returns the message as the dict that transformers gives to a template: keys
// whose value is null are left out, since templates would write "None".
absl::StatusOr<jinja::Value> MessageValue(const ChatMessage& message) {
  RETURN_IF_ERROR(DecodeUtf8(message.role).status());
  RETURN_IF_ERROR(DecodeUtf8(message.content).status());
  auto more = nlohmann::ordered_json::object();
  if (!message.more.empty()) {
    ASSIGN_OR_RETURN(
        more, ParsePart(message.more, "a message's further keys", false));
  }
  jinja::DictBuilder dict;
  dict.Set("role", jinja::Value(message.role));
  if (!more.contains("content")) {
    dict.Set("content", jinja::Value(message.content));
  }
  for (const auto& item : more.items()) {
    if (item.value().is_null()) continue;
    ASSIGN_OR_RETURN(jinja::Value value, jinja::FromJson(item.value()));
    dict.Set(item.key(), std::move(value));
  }
  return jinja::Value(dict.Take());
}

absl::StatusOr<jinja::Value> ToolsValue(const std::string& tools) {
  if (tools.empty()) return jinja::Value::MakeNone();
  ASSIGN_OR_RETURN(const nlohmann::ordered_json json,
                   ParsePart(tools, "the tools", true));
  return jinja::FromJson(json);
}

class JinjaChatTemplate : public ChatTemplate {
 public:
  JinjaChatTemplate(std::string path,
                    jinja::Block block,
                    jinja::Names special_tokens,
                    bool supports_thinking)
      : path_(std::move(path)),
        block_(std::move(block)),
        special_tokens_(std::move(special_tokens)),
        supports_thinking_(supports_thinking) {}

  bool supports_thinking() const override { return supports_thinking_; }

  absl::StatusOr<std::string> Render(
      const std::vector<ChatMessage>& messages,
      const ChatRenderOptions& options) const override {
    jinja::List list;
    for (const ChatMessage& message : messages) {
      ASSIGN_OR_RETURN(jinja::Value value, MessageValue(message));
      list.push_back(std::move(value));
    }
    ASSIGN_OR_RETURN(jinja::Value tools, ToolsValue(options.tools));
    jinja::Names variables = special_tokens_;
    variables.emplace_back("messages", jinja::Value(std::move(list)));
    variables.emplace_back("tools", std::move(tools));
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
  const jinja::Names special_tokens_;
  const bool supports_thinking_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Load(
    const std::string& folder) {
  ASSIGN_OR_RETURN(const TokenizerConfig config, ReadTokenizerConfig(folder));
  std::string path = JoinPath(folder, "chat_template.jinja");
  std::string source;
  if (FileExists(path)) {
    ASSIGN_OR_RETURN(source, ReadFile(path, kMaxTemplateBytes));
  } else {
    path = config.path;
    source = config.chat_template;
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
  jinja::Names special_tokens;
  for (const auto& [key, text] : config.special_tokens) {
    special_tokens.emplace_back(key, jinja::Value(text));
  }
  return std::make_unique<const JinjaChatTemplate>(
      path,
      *std::move(block),
      std::move(special_tokens),
      /*supports_thinking=*/absl::StrContains(source, "enable_thinking"));
}

}  // namespace dapd
