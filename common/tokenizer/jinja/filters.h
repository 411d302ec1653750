// Applies filters of the template language: `operand | name(arguments)`. No
// filter changes its operand. The size of their results, and of texts that they
// split, is bounded (RESOURCE_EXHAUSTED).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Returns whether jinja2 has this filter. Filters that draw at random, and
// filters for web pages, are known, but refused when they run.
bool IsKnownFilter(const std::string& name);

// Returns INVALID_ARGUMENT for an unknown filter, and for an operand or
// arguments that the filter does not accept.
absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments);

// Returns whether the filter's result is a generator in jinja2, which does its
// work during the iteration. ApplyFilter does the work at once and returns a
// generator of the results.
bool IsLazyFilter(const std::string& name);

// Returns whether the filter reads its whole operand, a generator or a list.
bool GoesThrough(const std::string& name);

// These tables hold the filters, by the type of the operand.
const Builtins& TextFilters();
const Builtins& NumberFilters();
const Builtins& ListFilters();

}  // namespace dapd::jinja
