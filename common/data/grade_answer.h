// Grades verified answers. It compares the last \boxed{} of a text, or several
// boxes of one statement, with the expected answer. Both are read as
// mathematics (grading/answer_expression.h): numbers exactly, expressions by
// their values, sets, tuples, intervals and equations by their parts; anything
// else is compared as normalised text. Where opinions may differ about what is
// right, it follows math-verify (tests/oracle/test_grading.py compares them).
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns the statement in a text's boxes: the content of the last box with
// balanced braces (escaped braces "\{" do not count), preceded by the contents
// of the boxes in front of it that belong to the same statement, joined by
// commas. As in math-verify, two boxes belong together if there are less than
// 10 bytes between them, or less than 70 with a comma, a semicolon, "and" or
// "or". No statement continues behind a "</think>". Returns nothing if there is
// no box.
std::optional<std::string> ExtractBoxed(absl::string_view text);

// Returns whether it is not clear what the text states: a box outside the
// statement has other content than ExtractBoxed, or a box is never closed.
bool IsUnclear(absl::string_view text);

// The comparison is symmetric except for equations. A given equation counts as
// its right-hand side, whatever is on its left ("2x = 10" where 10 is
// expected). An expected equation counts so only if its left side is made of
// names ("BC = 10"). The work is bounded for any input: a text longer than
// 4,096 bytes, or nested more than 64 deep, is compared as text.
bool AnswersEqual(absl::string_view given, absl::string_view expected);

struct Grade {
  bool has_box = false;
  bool correct = false;
  std::string extracted;  // content of the box
};
Grade GradeAnswer(absl::string_view text, absl::string_view expected);

}  // namespace dapd
