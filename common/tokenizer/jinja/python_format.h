// Implements Python's two ways to write values into a text: `text % values` and
// text.format(...). Widths, precisions and results are bounded
// (RESOURCE_EXHAUSTED); other errors are INVALID_ARGUMENT.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// `values` is a tuple with a value for each place of the text, a dict for
// places with names, or a single value.
absl::StatusOr<std::string> FormatPercent(const std::string& text,
                                          const Value& values);

// Handles "{}", "{0}", "{name}", "{0.part[key]!r:>8}".
absl::StatusOr<std::string> FormatBraces(const std::string& text,
                                         const Arguments& arguments);

}  // namespace dapd::jinja
