// The text of a cell of an Arrow table.
#pragma once

#include <arrow/array.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Nothing if the cell is null. These types have a text, which equals the text
// of the same value in a row of JSON Lines (json_text.h):
//
//   strings (plain, large, views)   their characters
//   booleans, whole numbers         as JSON writes them
//   floating point, half to double  as JSON writes a double
//   decimals                        all their digits: 1.50
//   dates without a time            2026-11-28
//   arrow.json                      the value's: 2, and x=1 of "x=1"
//   arrow.uuid, arrow.bool8         as their names say
//   dictionaries, run ends          the texts of their values
//
// INVALID_ARGUMENT, to be read behind the column's name, for every other type:
// nested ones, bytes, times, timestamps and durations, which have several texts
// or none, and extensions that are not named here; for a number that is not
// finite; for what is damaged. The array has to be valid (Array::Validate).
// A string may be ill-formed UTF-8.
absl::StatusOr<std::optional<std::string>> CellText(const arrow::Array& array,
                                                    int64_t row);

}  // namespace dapd
