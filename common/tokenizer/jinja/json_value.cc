#include "common/tokenizer/jinja/json_value.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace dapd::jinja {
namespace {

absl::Status PastInteger(const nlohmann::ordered_json& json) {
  return absl::InvalidArgumentError(
      absl::StrCat("a number past 64 bits, of which only ",
                   json.dump(),
                   " could be read; put it in quotes"));
}

}  // namespace

absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json) {
  if (json.is_null()) return Value::MakeNone();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_string()) return Value(json.get<std::string>());
  if (json.is_number_integer()) {
    int64_t number = 0;
    if (!ReadNumber(json, &number)) return PastInteger(json);
    return Value(number);
  }
  if (json.is_number_float()) {
    const auto number = json.get<double>();
    // Integers that fit into 64 bits are not stored as floating-point numbers.
    if (number >= 0x1p64 || number <= -0x1p63) return PastInteger(json);
    return Value(number);
  }
  if (json.is_array()) {
    List list;
    list.reserve(json.size());
    for (const nlohmann::ordered_json& item : json) {
      ASSIGN_OR_RETURN(Value value, FromJson(item));
      list.push_back(std::move(value));
    }
    return Value(std::move(list));
  }
  Dict dict;
  dict.reserve(json.size());
  for (const auto& item : json.items()) {
    ASSIGN_OR_RETURN(Value value, FromJson(item.value()));
    dict.emplace_back(Value(item.key()), std::move(value));
  }
  return Value(std::move(dict));
}

}  // namespace dapd::jinja
