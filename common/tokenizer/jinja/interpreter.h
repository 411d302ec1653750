// Runs a parsed template. Sandboxed by what it lacks: no files, no network, no
// attribute but those of attributes.h, a limit on steps, on the output and on
// the size of every value (budget.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"
#include "common/tokenizer/jinja/budget.h"

namespace dapd::jinja {

// INVALID_ARGUMENT, with the line, if the template raises or uses something
// undefined; RESOURCE_EXHAUSTED past a limit.
absl::StatusOr<std::string> Run(const Block& block,
                                const Names& variables,
                                const Limits& limits);

}  // namespace dapd::jinja
