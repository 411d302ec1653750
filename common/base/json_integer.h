// Whole numbers of JSON texts. nlohmann's own conversion takes true and 1.5 for
// 1, wraps what does not fit, and leaves 1e30 undefined: numbers of
// files that others write or can damage are read with these instead.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd {

// `value` if it is an integer (not 1.0) from `min` to `max`. `Json` is
// nlohmann::json or nlohmann::ordered_json.
template <typename Json>
absl::StatusOr<int64_t> JsonInteger(
    const Json& value,
    int64_t min,
    int64_t max = std::numeric_limits<int64_t>::max()) {
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  const bool fits = value.is_number_unsigned()
                        ? value.template get<uint64_t>() <= kLargest
                        : value.is_number_integer();
  if (fits) {
    const auto number = value.template get<int64_t>();
    if (number >= min && number <= max) return number;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(value.dump(), " is no integer from ", min, " to ", max));
}

// A list of token ids below `vocab_size`.
template <typename Json>
absl::StatusOr<std::vector<int32_t>> JsonTokenIds(
    const Json& value, int64_t vocab_size = int64_t{1} << 31) {
  if (!value.is_array()) {
    return absl::InvalidArgumentError("token ids must be a list");
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    ASSIGN_OR_RETURN(const int64_t id, JsonInteger(item, 0, vocab_size - 1));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace dapd
