// How Python writes values: str(), repr() and, of transformers' filter tojson,
// json.dumps().
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// The text that {{ value }} prints: Python's str(). INVALID_ARGUMENT for values
// that Python prints with an address: functions, methods, generators.
// RESOURCE_EXHAUSTED past 16 MiB, as below.
absl::StatusOr<std::string> ToText(const Value& value);

// repr().
absl::StatusOr<std::string> ToRepr(const Value& value);

// repr() of a float: the shortest digits that read back the same, with an
// exponent below 1e-4 and from 1e16 on.
std::string FloatText(double d);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool breaks_lines = false;
  std::string indent;  // in front of each level, if lines are broken
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// INVALID_ARGUMENT for what JSON cannot say.
absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace dapd::jinja
