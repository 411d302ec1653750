// JSON values as the texts of answers and ids.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"

namespace dapd {

// A string's characters; anything else as JSON writes it. An error (exit code
// of the data) for a number past 64 bits, which is not read exactly: two of
// them that differ would be the same text. `what` holds the value, for the
// message: "rows.jsonl:3: column 'answer'".
absl::StatusOr<std::string> JsonText(const nlohmann::json& value,
                                     absl::string_view what);

}  // namespace dapd
