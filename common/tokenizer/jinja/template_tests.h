// Applies tests of the template language: `operand is name(arguments)`.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Returns whether jinja2 has this test.
bool IsKnownTest(const std::string& name);

// Returns INVALID_ARGUMENT for an unknown test, and for an operand or arguments
// that the test does not accept.
absl::StatusOr<bool> ApplyTest(const std::string& name,
                               const Value& operand,
                               const Arguments& arguments);

}  // namespace dapd::jinja
