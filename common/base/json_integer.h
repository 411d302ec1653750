// Integers in JSON, with errors that say which integers are accepted.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"

namespace dapd {

// `value` if it is an integer (not 1.0) from `min` to `max`. `Json` is
// nlohmann::json or nlohmann::ordered_json.
template <typename Json>
absl::StatusOr<int64_t> JsonInteger(
    const Json& value,
    int64_t min,
    int64_t max = std::numeric_limits<int64_t>::max()) {
  int64_t number = 0;
  if (ReadNumber(value, &number) && number >= min && number <= max) {
    return number;
  }
  // The value may be anything, of any length.
  return absl::InvalidArgumentError(absl::StrCat(value.dump().substr(0, 60),
                                                 " is not an integer from ",
                                                 min,
                                                 " to ",
                                                 max));
}

// Returns a list of token ids below `vocab_size`. The error names the wrong
// item of `name`: "input_ids[2]: 1.5 is not an integer from 0 to 511 (the
// vocabulary's ids)".
template <typename Json>
absl::StatusOr<std::vector<int32_t>> JsonTokenIds(
    const Json& value,
    absl::string_view name,
    int64_t vocab_size = int64_t{1} << 31) {
  if (!value.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": token ids must be a list"));
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const auto id = JsonInteger(item, 0, vocab_size - 1);
    if (!id.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name,
                       "[",
                       ids.size(),
                       "]: ",
                       id.status().message(),
                       " (the vocabulary's ids)"));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace dapd
