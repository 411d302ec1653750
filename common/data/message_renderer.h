// MessageRenderer turns a user's message and its answer into tokens, by chat
// template and tokenizer. The message stands in the conversation of its row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/row_material.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

class MessageRenderer {
 public:
  // Begins every conversation with the message `system`, if there is one. Takes
  // the messages around the user's message and the tools from `material`, which
  // may be null. All references must outlive the renderer.
  MessageRenderer(const Tokenizer& tokenizer,
                  const ChatTemplate& chat_template,
                  std::optional<std::string> system = std::nullopt,
                  const RowMaterial* material = nullptr)
      : tokenizer_(tokenizer),
        chat_template_(chat_template),
        system_(std::move(system)),
        material_(material) {}

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
  // Returns the conversation up to the answer.
  std::vector<ChatMessage> Messages(const std::string& message) const;
  std::string Tools() const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  const std::optional<std::string> system_;
  const RowMaterial* const material_;
};

}  // namespace dapd
