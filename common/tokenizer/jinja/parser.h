// Parses a template into its syntax tree. It returns an error with the line for
// everything that jinja2 refuses when it reads a template: unknown tags, and
// unknown names of filters and tests (name_check.h). A source that is not UTF-8
// is an error, too. Constructs that only this interpreter does not know are
// refused when they are reached.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

absl::StatusOr<Block> Parse(const std::string& source);

}  // namespace dapd::jinja
