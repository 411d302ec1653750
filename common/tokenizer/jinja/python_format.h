// Python's two ways to write values into a text: `text % values` and
// text.format(...). Widths, precisions and results are bounded
// (RESOURCE_EXHAUSTED); other errors are INVALID_ARGUMENT.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// `values` is a tuple of as many as the text has places, a dict for places with
// names, or one value.
absl::StatusOr<std::string> FormatPercent(const std::string& text,
                                          const Value& values);

// With "{}", "{0}", "{name}", "{0.part[key]!r:>8}".
absl::StatusOr<std::string> FormatBraces(const std::string& text,
                                         const Arguments& arguments);

}  // namespace dapd::jinja
