#include "common/config/prompt_template.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

// The names of the fields, by PromptField.
constexpr std::array<const char*, kNumPromptFields> kFields = {
    "problem", "reference", "prompt", "solution", "feedback", "answer"};

std::optional<PromptField> ParseField(absl::string_view name) {
  const auto found = std::ranges::find(kFields, name);
  if (found == kFields.end()) return std::nullopt;
  return static_cast<PromptField>(found - kFields.begin());
}

// Returns the number of characters `brace` at the beginning of `text`.
size_t Run(absl::string_view text, char brace) {
  return std::min(text.find_first_not_of(brace), text.size());
}

bool IsOfWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Returns the word at the beginning of `text`; empty if there is none.
absl::string_view WordAt(absl::string_view text) {
  const auto end = std::ranges::find_if_not(text, IsOfWord);
  const absl::string_view word =
      text.substr(0, static_cast<size_t>(end - text.begin()));
  return word.size() < 2 || absl::ascii_isdigit(word.front())
             ? absl::string_view()
             : word;
}

}  // namespace

const char* PromptFieldName(PromptField field) {
  return kFields[static_cast<size_t>(field)];
}

const PromptColumns& NoColumns() {
  static const auto& none = *new PromptColumns();
  return none;
}

PromptTemplate::PromptTemplate(absl::string_view text) {
  Piece piece;
  while (!text.empty()) {
    const size_t before = std::min(text.find('{'), text.size());
    absl::StrAppend(&piece.text, text.substr(0, before));
    text.remove_prefix(before);
    const size_t opened = Run(text, '{');
    const absl::string_view word = WordAt(text.substr(opened));
    const size_t closed = Run(text.substr(opened + word.size()), '}');
    const size_t pairs = word.empty() ? 0 : std::min(opened, closed);
    // Braces beyond the pairs are text.
    absl::StrAppend(&piece.text, text.substr(0, opened - pairs));
    text.remove_prefix(opened);
    if (pairs == 0) continue;
    absl::StrAppend(&piece.text, std::string(pairs / 2, '{'));
    if (pairs % 2 == 0) {
      absl::StrAppend(&piece.text, word);
    } else {
      piece.field = ParseField(word);
      if (!piece.field.has_value()) piece.column = std::string(word);
      pieces_.push_back(std::move(piece));
      piece = {};
    }
    absl::StrAppend(&piece.text, std::string(pairs / 2, '}'));
    text.remove_prefix(word.size() + pairs);
  }
  pieces_.push_back(std::move(piece));
}

size_t PromptTemplate::Count(PromptField field) const {
  return static_cast<size_t>(std::ranges::count_if(
      pieces_, [&](const Piece& piece) { return piece.field == field; }));
}

size_t PromptTemplate::CountColumns() const {
  return static_cast<size_t>(std::ranges::count_if(
      pieces_, [](const Piece& piece) { return !piece.column.empty(); }));
}

std::set<std::string> PromptTemplate::Columns() const {
  std::set<std::string> columns;
  for (const Piece& piece : pieces_) {
    if (!piece.column.empty()) columns.insert(piece.column);
  }
  return columns;
}

std::string PromptTemplate::Fill(const Values& values,
                                 const PromptColumns& columns) const {
  std::string message;
  for (const Piece& piece : pieces_) {
    absl::StrAppend(&message, piece.text);
    if (piece.field.has_value()) {
      absl::StrAppend(&message, values[static_cast<size_t>(*piece.field)]);
    } else if (const auto column = columns.find(piece.column);
               column != columns.end()) {
      absl::StrAppend(&message, column->second);
    }
  }
  return message;
}

}  // namespace dapd
