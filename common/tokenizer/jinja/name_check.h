// Finds filters and tests in a template that jinja2 does not have, where jinja2
// refuses the template when it reads it. jinja2 accepts such a name in the
// condition or directly in the body of an {% if %}, or in an inline `if`: there
// it looks up the name when it reaches it.
#pragma once

#include "absl/status/status.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

// Returns INVALID_ARGUMENT, with the line, for the first name that jinja2 would
// refuse.
absl::Status CheckNames(const Block& block);

}  // namespace dapd::jinja
