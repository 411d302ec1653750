// Verified answers: what the last \boxed{} of a text, or several of one
// statement, hold, against the expected answer, both read as mathematics
// (grading/answer_expression.h): numbers exactly, expressions by their values,
// sets, tuples, intervals and equations by their parts; anything else as
// normalised text. Where it is a matter of taste what counts as right, it is
// what math-verify says (tests/oracle/test_grading.py compares).
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// The statement in a text's boxes: the contents of the last one whose braces
// are balanced, those that are written ("\{") left aside, and of those in front
// of it that belong to the same statement, with commas between them. As
// math-verify has it, two belong together if less than 10 bytes are between
// them, or less than 70 with a comma, a semicolon, "and" or "or" among them;
// but no statement goes on behind a "</think>". Nothing if there is no box.
std::optional<std::string> ExtractBoxed(absl::string_view text);

// Whether the text has boxes that say something else than ExtractBoxed and are
// not of one statement, or a box that is never closed: it is not clear what it
// states.
bool IsUnclear(absl::string_view text);

// Symmetric but for equations: a given one is its right-hand side, whatever is
// on its left ("2x = 10" where 10 is expected), an expected one only if that is
// made of names ("BC = 10"). Bounded work for any input: what is longer than
// 4,096 bytes or nested more than 64 deep is compared as text.
bool AnswersEqual(absl::string_view given, absl::string_view expected);

struct Grade {
  bool has_box = false;
  bool correct = false;
  std::string extracted;  // what the box holds
};
Grade GradeAnswer(absl::string_view text, absl::string_view expected);

}  // namespace dapd
