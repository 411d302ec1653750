#include "common/data/template_support.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kProbe[] = "dapd_probe";

absl::Status CheckShows(const ChatTemplate& chat_template,
                        const std::vector<ChatMessage>& messages,
                        const std::string& tools,
                        absl::string_view what) {
  const auto text = chat_template.Render(
      messages, {.add_generation_prompt = true, .tools = tools});
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the chat template does not take ",
                     what,
                     ": ",
                     std::string(text.status().message())));
  }
  if (absl::StrContains(*text, kProbe)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template leaves out ", what));
}

absl::Status OfKey(const char* key,
                   const char* advice,
                   const absl::Status& status) {
  if (status.ok()) return status;
  return ConfigError(absl::StrCat(key,
                                  ": ",
                                  std::string(status.message()),
                                  "; leave the key empty, ",
                                  advice,
                                  ", or use a model with such a template"));
}

}  // namespace

absl::Status CheckShowsSystem(const ChatTemplate& chat_template) {
  return CheckShows(chat_template,
                    {{"system", kProbe}, {"user", "1"}},
                    "",
                    "a system message");
}

absl::Status CheckShowsTools(const ChatTemplate& chat_template) {
  return CheckShows(
      chat_template,
      {{"user", "1"}},
      absl::StrCat(R"([{"type": "function", "function": {"name": ")",
                   kProbe,
                   R"(", "description": "", "parameters": {"type": "object", )",
                   R"("properties": {}, "required": []}}}])"),
      "tools");
}

absl::Status CheckTemplateSupport(const Config& config,
                                  const ChatTemplate& chat_template) {
  const char* system = !config.prompts.system.empty() ? "prompts.system"
                       : !config.data.system.empty()  ? "data.system"
                                                      : nullptr;
  if (system != nullptr) {
    RETURN_IF_ERROR(OfKey(system,
                          "put its text into prompts.none",
                          CheckShowsSystem(chat_template)));
  }
  if (config.data.tools_column.empty()) return absl::OkStatus();
  return OfKey("data.tools_column",
               "put the tools into a prompt as a field, as in {tools}",
               CheckShowsTools(chat_template));
}

}  // namespace dapd
