// Writes values as Python does: str(), repr() and, for transformers' filter
// tojson, json.dumps().
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Returns the text that {{ value }} prints: Python's str(). Returns
// INVALID_ARGUMENT for values that Python prints with an address (functions,
// methods, generators), and RESOURCE_EXHAUSTED past 16 MiB. The functions below
// have this limit, too.
absl::StatusOr<std::string> ToText(const Value& value);

// Implements Python's repr().
absl::StatusOr<std::string> ToRepr(const Value& value);

// Implements Python's repr() of a float: the shortest digits that read back as
// the same float, with an exponent below 1e-4 and from 1e16 on.
std::string FloatText(double d);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool breaks_lines = false;
  std::string indent;  // in front of each level, if lines are broken
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Returns INVALID_ARGUMENT for a value that JSON cannot represent.
absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace dapd::jinja
