// MessageRenderer turns a user's message and its answer into tokens, by chat
// template and tokenizer.
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

  // Return the message with the generation prompt, as text and as tokens.
  absl::StatusOr<std::string> PromptText(const std::string& message,
                                         bool thinking) const;
  absl::StatusOr<std::vector<int32_t>> Prompt(const std::string& message,
                                              bool thinking) const;

  absl::StatusOr<std::string> Conversation(const std::string& message,
                                           const std::string& answer) const;

  // Returns the prompt of a reference; `conversation` is the rendered
  // conversation.
  absl::StatusOr<std::vector<int32_t>> ReferencePrompt(
      const std::string& message,
      const std::string& conversation,
      bool thinking) const;

  // Returns the tokens of `reference` in `conversation` behind `prompt_ids`. In
  // two cases these are the tokens of the given reference and of the text that
  // the template writes behind it, tokenized alone: if the tokens of the
  // conversation do not begin with `prompt_ids`, and, with `thinking`, if the
  // template removes the thoughts of an answer. A thought that the prompt has
  // opened is not opened again then.
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
