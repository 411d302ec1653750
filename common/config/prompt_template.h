// PromptTemplate: a user message with fields for the texts of a row of the
// data.
//
//   {problem}    the problem
//   {reference}  the answer that is shown
//   {prompt}     the problem's message in `prompts.none`
//   {solution}   the filled `prompts.sibling_solution`, if there is a sibling
//   {feedback}   what was said about an answer
//   {answer}     the result that an answer states in its box
//
// Braces around anything but one word are text: \boxed{}, \frac{1}{2},
// {"answer": 3}. A word is two or more letters, digits and underscores that
// begin with a letter or an underscore; in braces it must be one of the fields
// above, so that a misspelt one is found. Two pairs of braces around a word
// stand for one pair of text, as in \text{{apples}}, and three pairs around a
// field for one pair of text around its value.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

enum class PromptField {
  kProblem,
  kReference,
  kPrompt,
  kSolution,
  kFeedback,
  kAnswer
};
inline constexpr size_t kNumPromptFields = 6;

// Returns "problem", ...
const char* PromptFieldName(PromptField field);

class PromptTemplate {
 public:
  // Returns INVALID_ARGUMENT for a word in braces that is no field.
  static absl::StatusOr<PromptTemplate> Parse(absl::string_view text);

  // Returns the number of times that a field occurs.
  size_t Count(PromptField field) const;

  // Returns the message with `values` (by PromptField) in place of the fields.
  // Fields inside the values are not replaced.
  using Values = std::array<absl::string_view, kNumPromptFields>;
  std::string Fill(const Values& values) const;

 private:
  struct Piece {
    std::string text;                  // and then
    std::optional<PromptField> field;  // of all pieces but the last
  };
  std::vector<Piece> pieces_;
};

}  // namespace dapd
