// Converts a cell of an Arrow table to text.
#pragma once

#include <arrow/array.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Returns nothing if the cell is null. A cell of one of these types has a text,
// which equals the text of the same value in a row of JSON Lines (json_text.h):
//
//   strings (plain, large, views)   their characters
//   booleans, whole numbers         as JSON writes them
//   floating point, half to double  as JSON writes a double
//   decimals                        all their digits: 1.50
//   dates without a time            2026-11-28
//   arrow.json                      the value's text: 2, and x=1 of "x=1"
//   arrow.uuid                      the UUID with its hyphens
//   arrow.bool8                     as JSON writes a boolean
//   dictionaries, run ends          the texts of their values
//
// Returns INVALID_ARGUMENT for every other type, for a number that is not
// finite, and for damaged data. The other types are nested types, bytes, times,
// timestamps and durations, which have several texts or no text, and extension
// types that the table does not name. The message continues a sentence that
// begins with the column's name. The array must be valid (Array::Validate). A
// string may be ill-formed UTF-8.
absl::StatusOr<std::optional<std::string>> CellText(const arrow::Array& array,
                                                    int64_t row);

// Returns the JSON value of a cell, null if the cell is null. Strings, booleans
// and numbers are values of JSON; a decimal, a date and a UUID are strings, as
// above; a list is an array, a struct an object with all fields of its type,
// and a map an object, whose keys are strings. arrow.json is the value itself.
// Other types, and strings that are not UTF-8, are errors as above.
absl::StatusOr<nlohmann::ordered_json> CellJson(const arrow::Array& array,
                                                int64_t row);

}  // namespace dapd
