// Defines the names that every template knows: range, dict, namespace, cycler,
// joiner and raise_exception. There is no clock and nothing random.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

const Names& Globals();

// Returns INVALID_ARGUMENT for a name that no namespace may have in
// transformers.
absl::Status CheckEntryName(const std::string& name);

// Returns the error of a call of something undefined.
absl::Status RefuseUndefinedCall(const Value& callee);

}  // namespace dapd::jinja
