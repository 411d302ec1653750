// Parses a template into its syntax tree. Everything that the interpreter does
// not know, down to names of filters, tests, methods and functions, is refused
// here with its name and line, and so is a source that is not UTF-8: every text
// of a template is.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

absl::StatusOr<Block> Parse(const std::string& source);

}  // namespace dapd::jinja
