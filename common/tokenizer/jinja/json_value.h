// Makes the values that a template reads of JSON, as Python's json.loads does.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

#include "common/tokenizer/jinja/value.h"

namespace dapd::jinja {

// Keeps the order of keys. Returns INVALID_ARGUMENT for a number that neither
// an int64 nor a finite double holds exactly as it was written: an integer past
// 64 bits, which nlohmann stores as a double.
absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json);

}  // namespace dapd::jinja
