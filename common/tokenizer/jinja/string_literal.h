// Reads the escapes in a template's string literals.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd::jinja {

// Returns the text of a literal with this well-formed UTF-8 between its quotes.
// As in jinja2, it is encode("ascii",
// "backslashreplace").decode("unicode-escape"), so an unknown escape stands for
// itself. Returns INVALID_ARGUMENT for an escape that lacks digits or means no
// character, and for a character by its name (\N).
absl::StatusOr<std::string> Unescape(const std::string& literal);

}  // namespace dapd::jinja
