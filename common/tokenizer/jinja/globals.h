// The names that every template knows: range, dict, namespace, cycler, joiner
// and raise_exception. There is no clock and nothing random.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

const Names& Globals();

// INVALID_ARGUMENT for a name that transformers lets no namespace have.
absl::Status CheckEntryName(const std::string& name);

// Why a call of something undefined fails.
absl::Status RefuseUndefinedCall(const Value& callee);

}  // namespace dapd::jinja
