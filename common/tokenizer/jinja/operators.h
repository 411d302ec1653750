// Operators and subscripts of the template language, as Python computes them.
// Errors are INVALID_ARGUMENT without a line, which the interpreter adds.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// "not", "-", "+".
absl::StatusOr<Value> ApplyUnary(const std::string& op, const Value& operand);

// All but "and" and "or", which need not evaluate both sides.
// RESOURCE_EXHAUSTED for a text of more than `max_bytes`.
absl::StatusOr<Value> ApplyBinary(const std::string& op,
                                  const Value& left,
                                  const Value& right,
                                  size_t max_bytes);

// object[key] and object.key: undefined where there is no such entry, an error
// where `object` is undefined itself.
absl::StatusOr<Value> GetItem(const Value& object, const Value& key);

}  // namespace dapd::jinja
