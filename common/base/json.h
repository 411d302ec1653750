// nlohmann::json with exact numbers. The conversions of the library accept true
// and 1.5 as 1, wrap numbers that do not fit, and leave 1e30 undefined. With
// this header every conversion, get<T>() of a list of numbers included, throws
// json::type_error instead. Only this header may include <nlohmann/json.hpp>; a
// test checks that.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace dapd {

// Returns false if `value` is not a number that `Number` can hold. An integer
// has no point and no exponent and lies within the range of its type. `Json` is
// nlohmann::json or nlohmann::ordered_json.
template <typename Number, typename Json>
bool ReadNumber(const Json& value, Number* number) {
  const auto take = [&](auto held) {
    if constexpr (std::is_integral_v<Number>) {
      if (!std::in_range<Number>(held)) return false;
    }
    *number = static_cast<Number>(held);
    return true;
  };
  // Unsigned ones first: nlohmann counts them among the integers.
  using Unsigned = typename Json::number_unsigned_t;
  using Integer = typename Json::number_integer_t;
  using Float = typename Json::number_float_t;
  if (const auto* held = value.template get_ptr<const Unsigned*>()) {
    return take(*held);
  }
  if (const auto* held = value.template get_ptr<const Integer*>()) {
    return take(*held);
  }
  if constexpr (std::is_floating_point_v<Number>) {
    if (const auto* held = value.template get_ptr<const Float*>()) {
      return take(*held);
    }
  }
  return false;
}

// Returns the text of `error` without the error number of nlohmann: a sentence
// for the author of the JSON, such as "key 'id' not found".
inline std::string JsonProblem(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace dapd

template <typename Number>
struct nlohmann::adl_serializer<
    Number,
    std::enable_if_t<std::is_arithmetic_v<Number> &&
                     !std::is_same_v<Number, bool>>> {
  template <typename Json>
  static void to_json(Json& json, Number value) {
    ::nlohmann::to_json(json, value);
  }
  template <typename Json>
  static void from_json(const Json& json, Number& number) {
    if (dapd::ReadNumber(json, &number)) return;
    throw detail::type_error::create(
        302,
        json.dump() +
            (std::is_integral_v<Number> ? " is not an integer that fits"
                                        : " is not a number"),
        &json);
  }
};
