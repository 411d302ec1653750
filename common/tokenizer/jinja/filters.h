// Filters of the template language: `operand | name(arguments)`. None of them
// changes its operand; what one builds, and the text that one takes apart, is
// bounded (RESOURCE_EXHAUSTED).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/arguments.h"
#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Whether jinja2 has this filter. A few of them are refused when they are
// reached: those that draw at random and those for web pages.
bool IsKnownFilter(const std::string& name);

// INVALID_ARGUMENT for a filter that there is not, and for an operand or
// arguments that it does not take.
absl::StatusOr<Value> ApplyFilter(const std::string& name,
                                  const Value& operand,
                                  const Arguments& arguments);

// Whether jinja2 makes a generator, which does its work when it is gone
// through. ApplyFilter does the work at once and gives a generator of what came
// out.
bool IsLazyFilter(const std::string& name);

// Whether the filter goes through its whole operand, be that a generator or a
// list.
bool GoesThrough(const std::string& name);

// The tables, by what they work on.
const Builtins& TextFilters();
const Builtins& NumberFilters();
const Builtins& ListFilters();

}  // namespace dapd::jinja
