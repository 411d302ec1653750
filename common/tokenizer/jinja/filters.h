// Filters of the template language: `operand | name(arguments)`. None of them
// changes its operand; what one builds, and the text that one takes apart, is
// bounded (RESOURCE_EXHAUSTED).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/builtins.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

bool IsKnownFilter(const std::string& name);

// `name` is a known one. INVALID_ARGUMENT for an operand or arguments that it
// does not take.
absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments);

}  // namespace dapd::jinja
