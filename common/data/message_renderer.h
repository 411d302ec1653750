// MessageRenderer: a user's message, and what answers it, through template and
// tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

class MessageRenderer {
 public:
  // Both must outlive the renderer.
  MessageRenderer(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : tokenizer_(tokenizer), chat_template_(chat_template) {}

  // The message and the generation prompt, as text and as tokens.
  absl::StatusOr<std::string> PromptText(const std::string& message,
                                         bool thinking) const;
  absl::StatusOr<std::vector<int32_t>> Prompt(const std::string& message,
                                              bool thinking) const;

  absl::StatusOr<std::string> Conversation(const std::string& message,
                                           const std::string& answer) const;

  // The prompt of a reference in `conversation`, its rendering.
  absl::StatusOr<std::vector<int32_t>> ReferencePrompt(
      const std::string& message,
      const std::string& conversation,
      bool thinking) const;

  // The tokens of `reference` in `conversation`, after `prompt_ids`. If the
  // conversation's tokens do not begin with the prompt's, they are the
  // reference's as it was given and what the template writes after it, by
  // themselves; with `thinking` also if the template writes an answer without
  // its thoughts. A thought that the prompt has opened is then not opened
  // again.
  absl::StatusOr<std::vector<int32_t>> Completion(
      const std::string& message,
      const std::string& reference,
      const std::string& conversation,
      const std::vector<int32_t>& prompt_ids,
      bool thinking) const;

 private:
  absl::StatusOr<std::string> AfterAnswer(const std::string& message) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
};

}  // namespace dapd
