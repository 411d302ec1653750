// Verified answers: the last balanced \boxed{} of a text against the expected
// answer, both read as mathematics (grading/answer_expression.h): numbers
// exactly, expressions by their values, sets, tuples, intervals and equations
// by their parts; anything else as normalised text. Where it is a matter of
// taste what counts as right, it is what math-verify says
// (tests/oracle/test_grading.py compares).
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// The content of the last \boxed{...} whose braces are balanced, those that are
// written ("\{") left aside; nothing if there is none.
std::optional<std::string> ExtractBoxed(absl::string_view text);

// Symmetric but for equations: a given one is its right-hand side, whatever is
// on its left ("BC = 10" where 10 is expected), an expected one only if that is
// a name or a number. Bounded work for any input: what is longer than 4,096
// bytes or nested more than 64 deep is compared as text.
bool AnswersEqual(absl::string_view given, absl::string_view expected);

struct Grade {
  bool has_box = false;
  bool correct = false;
  std::string extracted;  // what the box holds
};
Grade GradeAnswer(absl::string_view text, absl::string_view expected);

}  // namespace dapd
