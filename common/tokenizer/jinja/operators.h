// Implements operators and slices of the template language as Python computes
// them. Errors are INVALID_ARGUMENT without a line, which the interpreter adds,
// and RESOURCE_EXHAUSTED for results larger than any value may be.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// One operation may build a text or list of at most this size.
inline constexpr size_t kMaxBuiltBytes = size_t{16} << 20;

// `op` is "not", "-" or "+".
absl::StatusOr<Value> ApplyUnary(const std::string& op, const Value& operand);

// `op` is any operator except "and" and "or", which need not evaluate both
// sides.
absl::StatusOr<Value> ApplyBinary(const std::string& op,
                                  const Value& left,
                                  const Value& right);

// Implements Python's <: compares numbers, texts, and lists and tuples part by
// part.
absl::StatusOr<bool> IsLess(const Value& left, const Value& right);

// Evaluates Python's `item in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& item);

// Slices a list or, by code points, a string as Python does. Absent bounds are
// undefined.
absl::StatusOr<Value> Slice(const Value& object,
                            const Value& start,
                            const Value& stop,
                            const Value& step);

// Returns the text with HTML's five special characters written as entities.
std::string EscapeHtml(const std::string& text);

}  // namespace dapd::jinja
