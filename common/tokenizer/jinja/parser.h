// Parses a template into its syntax tree. What jinja2 refuses when it reads a
// template is refused here with its line: tags, and the names of filters and
// tests that there are not (name_check.h), and so is a source that is not
// UTF-8: every text of a template is. What is only unknown to the interpreter
// is refused when it is reached.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

absl::StatusOr<Block> Parse(const std::string& source);

}  // namespace dapd::jinja
