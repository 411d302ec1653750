// Tests of the template language: `operand is name(arguments)`.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Whether jinja2 has this test.
bool IsKnownTest(const std::string& name);

// INVALID_ARGUMENT for a test that there is not, and for an operand or
// arguments that it does not take.
absl::StatusOr<bool> ApplyTest(const std::string& name,
                               const Value& operand,
                               const Arguments& arguments);

}  // namespace dapd::jinja
