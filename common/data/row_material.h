// RowMaterial: everything that a row gives to its prompts beside its problem
// and its reference. Most rows have none.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/config/prompt_template.h"
#include "common/tokenizer/chat_template.h"

namespace dapd {

struct RowMaterial {
  PromptColumns columns;              // the texts of the prompts' fields
  std::optional<std::string> system;  // the conversation's system message
  std::vector<ChatMessage> before;    // messages before the problem's message
  // Messages between the problem's message and the answer: tool calls and their
  // results.
  std::vector<ChatMessage> after;
  // ChatMessage::more of the problem's message, ChatRenderOptions::tools.
  std::string user_more;
  std::string tools;

  bool operator==(const RowMaterial&) const = default;
};

// Converts material to JSON and back. The object has only keys with a value:
//
//   {"columns": {name: text}, "system": text, "before": [message], "after":
//   [message], "user": {...}, "tools": [...]}
//
// A message has its role, its content and its further keys. ParseMaterial
// returns INVALID_ARGUMENT for any other form.
nlohmann::ordered_json MaterialJson(const RowMaterial& material);
absl::StatusOr<std::shared_ptr<const RowMaterial>> ParseMaterial(
    const nlohmann::ordered_json& json);

// Refers to what the prompts of a row are made of. Both parts must outlive it.
struct PromptSource {
  // NOLINTBEGIN(google-explicit-constructor): a problem alone is a source.
  PromptSource(const std::string& text) : problem(text) {}
  PromptSource(const char* text) : problem(text) {}
  // NOLINTEND(google-explicit-constructor)
  PromptSource(const std::string& text, const RowMaterial* of_row)
      : problem(text), material(of_row) {}

  const PromptColumns& columns() const {
    return material == nullptr ? NoColumns() : material->columns;
  }
  // Returns a text that is the same for two sources only if their prompts are.
  std::string Key() const;

  absl::string_view problem;
  const RowMaterial* material = nullptr;  // null: the row has none
};

}  // namespace dapd
