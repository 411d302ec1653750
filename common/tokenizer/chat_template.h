// Runs the model folder's own chat template (Jinja) in a sandbox. The sandbox
// has no clock: `strftime_now` is undefined, so that Llama 3.2's template
// writes its own default date and a run that is resumed tomorrow has the same
// prompts as today. A template that calls `strftime_now` without a check cannot
// be rendered.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // A JSON object with the message's further keys, in their order, which the
  // template gets as well: {"tool_calls": [...]}. Empty: there are none. The
  // template does not get keys of null; a content of null among them says that
  // there is no content.
  std::string more = "";

  bool operator==(const ChatMessage&) const = default;
};

struct ChatRenderOptions {
  bool add_generation_prompt = false;
  // If unset, the template's `enable_thinking` is undefined.
  std::optional<bool> enable_thinking;
  // A JSON list of tool definitions, the template's `tools`. Empty: None.
  std::string tools = "";
};

// Immutable once loaded; thread-safe.
class ChatTemplate {
 public:
  // Reads chat_template.jinja or, if it does not exist, `chat_template` of
  // tokenizer_config.json. A construct that the interpreter does not know is an
  // error that names the construct and its line; Load already returns it.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Load(
      const std::string& folder);
  virtual ~ChatTemplate() = default;

  // Returns INVALID_ARGUMENT if a message is not UTF-8, if `more` or `tools` is
  // not JSON, or if the template
  // raises an exception or uses something undefined; RESOURCE_EXHAUSTED past
  // the limits on steps or output.
  virtual absl::StatusOr<std::string> Render(
      const std::vector<ChatMessage>& messages,
      const ChatRenderOptions& options) const = 0;

  // Returns whether the template reads `enable_thinking`.
  virtual bool supports_thinking() const = 0;
};

}  // namespace dapd
