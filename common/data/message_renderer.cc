#include "common/data/message_renderer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Templates of Qwen3's kind begin an answer without thoughts with this text.
constexpr char kEmptyThoughts[] =
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

constexpr char kBeginOfThoughts[] = "<think>";
constexpr char kEndOfThoughts[] = "</think>";

// Stands for an answer if only the text behind it is needed.
constexpr char kAnyAnswer[] = "__ANSWER__";

}  // namespace

std::vector<ChatMessage> MessageRenderer::Messages(
    const std::string& message) const {
  std::vector<ChatMessage> messages;
  if (system_.has_value()) messages.push_back({"system", *system_});
  if (material_ == nullptr) {
    messages.push_back({"user", message});
    return messages;
  }
  const RowMaterial& row = *material_;
  messages.insert(messages.end(), row.before.begin(), row.before.end());
  messages.push_back({"user", message, row.user_more});
  messages.insert(messages.end(), row.after.begin(), row.after.end());
  return messages;
}

std::string MessageRenderer::Tools() const {
  return material_ == nullptr ? std::string() : material_->tools;
}

absl::StatusOr<std::string> MessageRenderer::PromptText(
    const std::string& message, bool thinking) const {
  return chat_template_.Render(Messages(message),
                               {.add_generation_prompt = true,
                                .enable_thinking = thinking,
                                .tools = Tools()});
}

absl::StatusOr<std::vector<int32_t>> MessageRenderer::Prompt(
    const std::string& message, bool thinking) const {
  ASSIGN_OR_RETURN(const std::string text, PromptText(message, thinking));
  return tokenizer_.Encode(text);
}

absl::StatusOr<std::string> MessageRenderer::Conversation(
    const std::string& message, const std::string& answer) const {
  std::vector<ChatMessage> messages = Messages(message);
  messages.push_back({"assistant", answer});
  return chat_template_.Render(messages, {.tools = Tools()});
}

absl::StatusOr<std::vector<int32_t>> MessageRenderer::ReferencePrompt(
    const std::string& message,
    const std::string& conversation,
    bool thinking) const {
  const size_t preamble = chat_template_.supports_thinking()
                              ? conversation.rfind(kEmptyThoughts)
                              : std::string::npos;
  if (preamble == std::string::npos) return Prompt(message, thinking);
  return tokenizer_.Encode(
      conversation.substr(0, preamble + sizeof(kEmptyThoughts) - 1));
}

absl::StatusOr<std::vector<int32_t>> MessageRenderer::Completion(
    const std::string& message,
    const std::string& reference,
    const std::string& conversation,
    const std::vector<int32_t>& prompt_ids,
    bool thinking) const {
  const bool loses_thoughts = thinking &&
                              absl::StrContains(reference, kEndOfThoughts) &&
                              !absl::StrContains(conversation, kEndOfThoughts);
  if (!loses_thoughts) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> all,
                     tokenizer_.Encode(conversation));
    const auto end = std::mismatch(
        prompt_ids.begin(), prompt_ids.end(), all.begin(), all.end());
    if (end.first == prompt_ids.end()) {
      return std::vector<int32_t>(end.second, all.end());
    }
  }
  ASSIGN_OR_RETURN(const std::string after, AfterAnswer(message));
  absl::string_view given = reference;
  if (thinking) {
    ASSIGN_OR_RETURN(const std::string prompt,
                     tokenizer_.Decode(prompt_ids,
                                       /*skip_special_tokens=*/false));
    const absl::string_view opened = absl::StripTrailingAsciiWhitespace(prompt);
    if (absl::EndsWith(opened, kBeginOfThoughts) &&
        absl::ConsumePrefix(&given, kBeginOfThoughts)) {
      given = absl::StripLeadingAsciiWhitespace(given);
    }
  }
  return tokenizer_.Encode(absl::StrCat(given, after));
}

// Returns the text that the template writes behind an answer. Searching for the
// reference itself would fail: the template may rewrite it, or its text may
// occur again behind it.
absl::StatusOr<std::string> MessageRenderer::AfterAnswer(
    const std::string& message) const {
  ASSIGN_OR_RETURN(const std::string conversation,
                   Conversation(message, kAnyAnswer));
  const size_t begin = conversation.rfind(kAnyAnswer);
  if (begin == std::string::npos) return std::string();
  return conversation.substr(begin + sizeof(kAnyAnswer) - 1);
}

}  // namespace dapd
