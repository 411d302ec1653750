// The escapes in a template's string literals.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd::jinja {

// What a literal with this well-formed UTF-8 between its quotes stands for: as
// in jinja2, encode("ascii", "backslashreplace").decode("unicode-escape"), so
// that an unknown escape stands for itself. INVALID_ARGUMENT for an escape that
// lacks digits or means no character, and for a character by its name (\N).
absl::StatusOr<std::string> Unescape(const std::string& literal);

}  // namespace dapd::jinja
