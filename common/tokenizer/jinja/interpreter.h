// Runs a parsed template in a sandbox: there are no files, no network and no
// attributes except the attributes of attributes.h; the steps, the output and
// the size of every value are limited (budget.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/budget.h"

namespace dapd::jinja {

// Returns INVALID_ARGUMENT, with the line, if the template raises an exception
// or uses something undefined; RESOURCE_EXHAUSTED past a limit.
absl::StatusOr<std::string> Run(const Block& block,
                                const Names& variables,
                                const Limits& limits);

}  // namespace dapd::jinja
