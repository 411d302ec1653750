// Verified answers: the last balanced \boxed{} of a text against the expected
// answer. Numbers compare exactly (integers, decimals, fractions, thousands
// separators, units stripped), anything else as normalised text.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// The content of the last balanced \boxed{...}; nothing if there is none.
std::optional<std::string> ExtractBoxed(absl::string_view text);

bool AnswersEqual(absl::string_view given, absl::string_view expected);

struct Grade {
  bool has_box = false;
  bool correct = false;
  std::string extracted;  // what the box holds
};
Grade GradeAnswer(absl::string_view text, absl::string_view expected);

}  // namespace dapd
