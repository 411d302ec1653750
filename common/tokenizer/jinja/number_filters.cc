// Implements filters that read or write numbers.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"
#include "common/tokenizer/jinja/filters.h"
#include "common/tokenizer/jinja/operators.h"
#include "common/tokenizer/jinja/python_text.h"

namespace dapd::jinja {
namespace {

constexpr int64_t kMaxRoundDigits = 300;
constexpr double kIntegerLimit = 9.2e18;

// Removes underscores between digits, which Python's numbers may have; returns
// nothing if an underscore is elsewhere.
std::optional<std::string> WithoutUnderscores(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain += text[i];
      continue;
    }
    const bool is_between =
        i > 0 && i + 1 < text.size() &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i - 1])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1]));
    if (!is_between) return std::nullopt;
  }
  return plain;
}

// Implements Python's float(text); returns nothing if `text` is not a number.
std::optional<double> ReadFloat(const std::string& text) {
  const auto plain = WithoutUnderscores(AsciiDigits(text));
  if (!plain.has_value()) return std::nullopt;
  // Python has no hexadecimal floats.
  if (absl::StrContains(absl::AsciiStrToLower(*plain), 'x'))
    return std::nullopt;
  const std::string lower = absl::AsciiStrToLower(*plain);
  absl::string_view word = lower;
  absl::ConsumePrefix(&word, "+") || absl::ConsumePrefix(&word, "-");
  const bool is_word = word == "inf" || word == "infinity" || word == "nan";
  if (!is_word &&
      (word.empty() || word.find_first_not_of("0123456789.e+-") != word.npos)) {
    return std::nullopt;
  }
  double number = 0;
  if (!absl::SimpleAtod(lower, &number)) return std::nullopt;
  return number;
}

// Implements Python's int(text, base); returns nothing if `text` is not an
// integer, and an error if it is too large.
absl::StatusOr<std::optional<int64_t>> ReadInteger(const std::string& text,
                                                   int64_t base) {
  const auto plain = WithoutUnderscores(AsciiDigits(text));
  if (!plain.has_value()) return std::nullopt;
  std::string lower = absl::AsciiStrToLower(*plain);
  absl::string_view rest = lower;
  const bool is_negative = absl::ConsumePrefix(&rest, "-");
  if (!is_negative) absl::ConsumePrefix(&rest, "+");
  for (const auto& [prefix, its_base] :
       {std::pair<const char*, int64_t>("0x", 16), {"0o", 8}, {"0b", 2}}) {
    if ((base == its_base || base == 0) && absl::ConsumePrefix(&rest, prefix)) {
      base = its_base;
    }
  }
  // With base 0 only zeros may follow a zero at the beginning of a number.
  if (base == 0 && rest.size() > 1 && rest[0] == '0' &&
      rest.find_first_not_of('0') != rest.npos) {
    return std::nullopt;
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || rest.empty()) return std::nullopt;
  int64_t number = 0;
  bool overflows = false;
  for (const char c : rest) {
    const int64_t digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                              ? c - '0'
                          : c >= 'a' && c <= 'z' ? c - 'a' + 10
                                                 : 99;
    if (digit >= base) return std::nullopt;
    overflows |= __builtin_mul_overflow(number, base, &number) ||
                 __builtin_sub_overflow(number, digit, &number);
  }
  if (!is_negative) {
    overflows |= __builtin_sub_overflow(int64_t{0}, number, &number);
  }
  if (overflows) return absl::InvalidArgumentError("an integer overflows");
  return number;
}

absl::Status FloatIsNoInteger(double d) {
  return absl::InvalidArgumentError(
      absl::StrCat("the float ", d, " cannot be an integer"));
}

absl::Status IsUndefined(const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", value.undefined().name, "' is undefined"));
}

absl::StatusOr<Value> IntFilter(const Call& call) {
  const Value fallback = call[0].is_undefined() ? Value(int64_t{0}) : call[0];
  ASSIGN_OR_RETURN(const int64_t base, IntegerOr(call[1], 10));
  if (call.object.is_undefined()) return IsUndefined(call.object);
  if (call.object.is_whole()) return Value(call.object.integer());
  std::optional<double> as_float;
  if (call.object.is_string()) {
    ASSIGN_OR_RETURN(const auto number,
                     ReadInteger(call.object.string(), base));
    if (number.has_value()) return Value(*number);
    as_float = ReadFloat(call.object.string());
    // The filter catches the error of int(inf).
    if (as_float.has_value() && std::isinf(*as_float)) return fallback;
  } else if (call.object.is_double()) {
    as_float = call.object.number();
  }
  if (!as_float.has_value() || std::isnan(*as_float)) return fallback;
  if (!(std::abs(*as_float) < kIntegerLimit)) {
    return FloatIsNoInteger(*as_float);
  }
  return Value(static_cast<int64_t>(*as_float));
}

absl::StatusOr<Value> FloatFilter(const Call& call) {
  if (call.object.is_undefined()) return IsUndefined(call.object);
  if (call.object.is_number()) return Value(call.object.number());
  if (call.object.is_string()) {
    const auto number = ReadFloat(call.object.string());
    if (number.has_value()) return Value(*number);
  }
  return call[0].is_undefined() ? Value(0.0) : call[0];
}

// Rounds half to even, by the exact decimal digits of the number.
double RoundFloat(double d, int64_t digits) {
  if (!std::isfinite(d) || digits > kMaxRoundDigits) return d;
  if (digits < -kMaxRoundDigits) return std::copysign(0.0, d);
  if (digits >= 0) {
    const std::string text =
        absl::StrFormat("%.*f", static_cast<int>(digits), d);
    return std::strtod(text.c_str(), nullptr);
  }
  const long double unit = std::pow(10.0L, static_cast<long double>(-digits));
  return static_cast<double>(
      std::nearbyint(static_cast<long double>(d) / unit) * unit);
}

absl::StatusOr<Value> RoundInteger(int64_t number, int64_t digits) {
  if (digits >= 0) return Value(number);
  if (digits < -18) return Value(int64_t{0});
  int64_t unit = 1;
  for (int64_t i = 0; i < -digits; ++i) unit *= 10;
  int64_t quotient = number / unit;
  const int64_t rest = std::abs(number % unit);
  const bool is_up =
      rest > unit - rest || (rest == unit - rest && (quotient & 1) != 0);
  if (is_up) quotient += number < 0 ? -1 : 1;
  int64_t rounded = 0;
  if (__builtin_mul_overflow(quotient, unit, &rounded)) {
    return absl::InvalidArgumentError("an integer overflows");
  }
  return Value(rounded);
}

absl::StatusOr<Value> RoundFilter(const Call& call) {
  ASSIGN_OR_RETURN(const int64_t digits, IntegerOr(call[0], 0));
  const std::string method = call[1].is_string() ? call[1].string() : "common";
  const Value& number = call.object;
  if (number.is_undefined()) return IsUndefined(number);
  if (!number.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", number.TypeName(), " cannot be rounded"));
  }
  if (method == "common") {
    if (number.is_whole()) return RoundInteger(number.integer(), digits);
    return Value(RoundFloat(number.number(), digits));
  }
  if (method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError(
        "the method of round is common, ceil or floor");
  }
  const Value ten(int64_t{10});
  ASSIGN_OR_RETURN(const Value unit, ApplyBinary("**", ten, Value(digits)));
  ASSIGN_OR_RETURN(const Value scaled, ApplyBinary("*", number, unit));
  const double whole = method == "ceil" ? std::ceil(scaled.number())
                                        : std::floor(scaled.number());
  if (!std::isfinite(whole)) return FloatIsNoInteger(whole);
  return ApplyBinary("/", Value(whole), unit);
}

absl::StatusOr<Value> AbsFilter(const Call& call) {
  const Value& number = call.object;
  if (number.is_undefined()) return IsUndefined(number);
  if (!number.is_number()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ", number.TypeName(), " has no absolute value"));
  }
  if (number.is_double()) return Value(std::abs(number.number()));
  return number.integer() < 0 ? ApplyUnary("-", Value(number.integer()))
                              : Value(number.integer());
}

absl::StatusOr<Value> FileSize(const Call& call) {
  std::optional<double> bytes;
  if (call.object.is_number()) bytes = call.object.number();
  if (call.object.is_string()) bytes = ReadFloat(call.object.string());
  if (!bytes.has_value()) {
    return absl::InvalidArgumentError("filesizeformat needs a number");
  }
  const bool binary = call[0].Truthy();
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value(std::string("1 Byte"));
  if (*bytes < base) {
    return Value(absl::StrCat(static_cast<int64_t>(*bytes), " Bytes"));
  }
  const absl::string_view units = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0; i < units.size(); ++i) {
    unit *= base;
    if (*bytes >= unit && i + 1 < units.size()) continue;
    const char letter = binary && i == 0 ? 'K' : units[i];
    return Value(absl::StrFormat(
        "%.1f %c%s", base * *bytes / unit, letter, binary ? "iB" : "B"));
  }
  return Value(std::string());
}

}  // namespace

const Builtins& NumberFilters() {
  static const auto& table = *new Builtins{
      {"abs", {"", AbsFilter}},
      {"filesizeformat", {"binary?", FileSize}},
      {"float", {"default?", FloatFilter}},
      {"int", {"default? base?", IntFilter}},
      {"round", {"precision? method?", RoundFilter}},
  };
  return table;
}

}  // namespace dapd::jinja
