// Converts JSON values to the texts of answers and ids.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"

namespace dapd {

// Returns the characters of a string, and any other value as JSON writes it. A
// number beyond 64 bits is an error (exit code kData): it is not read exactly,
// and two different ones would give the same text. `what` names the place of
// the value for the message: "rows.jsonl:3: column 'answer'".
absl::StatusOr<std::string> JsonText(const nlohmann::json& value,
                                     absl::string_view what);

// Returns the text of json.dumps(value, ensure_ascii=False) in Python: keys in
// their order, ", " and ": " between parts. Returns INVALID_ARGUMENT for a
// number past 64 bits, and RESOURCE_EXHAUSTED past 16 MiB.
absl::StatusOr<std::string> PythonJson(const nlohmann::ordered_json& value);

}  // namespace dapd
