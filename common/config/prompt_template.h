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
// Any other word in braces is a field, too: it stands for the row's column of
// that name, as {hint} and {tests} do. A row without that column is refused, so
// that a misspelt field is found. {context} stands for the column that
// data.context_column names.
//
// Braces around anything but one word are text: \boxed{}, \frac{1}{2},
// {"answer": 3}. A word is two or more letters, digits and underscores that
// begin with a letter or an underscore. Two pairs of braces around a word
// stand for one pair of text, as in \text{{apples}}, and three pairs around a
// field for one pair of text around its value.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

// The texts that fields other than PromptField stand for, by the field's name.
using PromptColumns = std::map<std::string, std::string, std::less<>>;
// Returns the columns of a row that has none.
const PromptColumns& NoColumns();

class PromptTemplate {
 public:
  explicit PromptTemplate(absl::string_view text);

  // Returns the number of times that a field occurs.
  size_t Count(PromptField field) const;
  // Returns the number of times that columns occur.
  size_t CountColumns() const;
  // Returns the names of the other fields, which stand for columns.
  std::set<std::string> Columns() const;

  // Returns the message with `values` (by PromptField) and `columns` in place
  // of the fields. A column that is not there is empty. Fields inside the
  // values are not replaced.
  using Values = std::array<absl::string_view, kNumPromptFields>;
  std::string Fill(const Values& values,
                   const PromptColumns& columns = NoColumns()) const;

 private:
  // A text, and the field behind it; the last piece has no field.
  struct Piece {
    std::string text;
    std::optional<PromptField> field;
    std::string column;  // the field's name if it stands for a column
  };
  std::vector<Piece> pieces_;
};

}  // namespace dapd
