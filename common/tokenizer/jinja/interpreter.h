// Runs a parsed template. Sandboxed by what it lacks: no files, no network, no
// attribute but dict entries, a limit on steps, on the output and on the size
// of every value.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/ast.h"

namespace dapd::jinja {

struct Limits {
  // A step: an expression or statement, or 64 bytes or 4 entries worked on.
  int64_t max_steps = 2'000'000;
  size_t max_output_bytes = size_t{16} << 20;
};

// INVALID_ARGUMENT, with the line, if the template raises or uses something
// undefined; RESOURCE_EXHAUSTED past a limit.
absl::StatusOr<std::string> Run(const Block& block,
                                const Dict& variables,
                                const Limits& limits);

}  // namespace dapd::jinja
