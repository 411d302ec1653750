// Looks for filters and tests in a template that jinja2 does not have, where
// that matters: jinja2 refuses the template as it is read, unless the name
// stands in the condition or directly in the body of an {% if %}, or in an
// inline `if`. There it is looked up when it is reached.
#pragma once

#include "absl/status/status.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

// INVALID_ARGUMENT, with the line, for the first name that jinja2 would refuse.
absl::Status CheckNames(const Block& block);

}  // namespace dapd::jinja
