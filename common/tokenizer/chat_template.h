// The model folder's own chat template (Jinja), run in a sandbox. It has no
// clock: `strftime_now` is undefined, so that Llama 3.2's template writes the
// date of its own and a run resumed tomorrow has the prompts of today. A
// template that calls it all the same cannot be rendered.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatRenderOptions {
  bool add_generation_prompt = false;
  // Absent: the template's `enable_thinking` stays undefined.
  std::optional<bool> enable_thinking;
};

// Immutable once loaded; thread-safe.
class ChatTemplate {
 public:
  // Reads chat_template.jinja, else `chat_template` of tokenizer_config.json.
  // A construct the interpreter does not know is an error naming it and its
  // line, already here, before anything is rendered.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Load(
      const std::string& folder);
  virtual ~ChatTemplate() = default;

  // INVALID_ARGUMENT if a message is not UTF-8, or if the template raises or
  // refers to what is missing;
  // RESOURCE_EXHAUSTED past the limits on steps or output.
  virtual absl::StatusOr<std::string> Render(
      const std::vector<ChatMessage>& messages,
      const ChatRenderOptions& options) const = 0;

  // Whether the template asks for `enable_thinking`.
  virtual bool supports_thinking() const = 0;
};

}  // namespace dapd
