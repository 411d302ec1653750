// Reads the numbers of a sum: digits, repeating decimals, mixed numbers.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/data/grading/exact_number.h"
#include "common/data/grading/value_parser.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;

}  // namespace

std::optional<MathValue> ValueParser::Number(bool may_be_mixed) {
  const std::string text = tokens_.TakeNumber();
  const auto number = ExactNumber::FromDecimal(text);
  if (!number.has_value()) return std::nullopt;
  MathValue value = ExactValue(*number);
  value.is_decimal = text.find('.') != std::string::npos;
  if (tokens_.TakeCommand("repeating")) return Repeating(value, text);
  // The base of a numeral, as in 1011_2, is left out.
  if (tokens_.Take("_") && !Script().has_value()) return std::nullopt;
  if (!may_be_mixed || value.is_decimal) return value;
  if (tokens_.SeesCommand("frac")) return Mixed(value);
  const auto fraction = ProperFraction();
  return fraction.has_value() ? Sum(value, *fraction) : value;
}

std::optional<MathValue> ValueParser::ProperFraction() {
  const size_t begin = tokens_.at();
  if (!tokens_.SeesKind(Kind::kNumber)) return std::nullopt;
  const auto top = Number(/*may_be_mixed=*/false);
  if (top.has_value() && tokens_.Take("/") && tokens_.SeesKind(Kind::kNumber)) {
    const auto bottom = Number(/*may_be_mixed=*/false);
    const bool ends = !tokens_.Sees("^") && !tokens_.Sees("!");
    if (ends && bottom.has_value() && IntegerOf(*top).has_value() &&
        IntegerOf(*top) < IntegerOf(*bottom)) {
      return Quotient(*top, *bottom);
    }
  }
  tokens_.GoTo(begin);
  return std::nullopt;
}

std::optional<MathValue> ValueParser::Repeating(const MathValue& value,
                                                const std::string& text) {
  if (!tokens_.SeesKind(Kind::kNumber)) return std::nullopt;
  const std::string& period = tokens_.Next().text;
  const size_t dot = text.find('.');
  const size_t decimals = dot == std::string::npos ? 0 : text.size() - dot - 1;
  const auto digits = ExactNumber::FromDecimal(period);
  const auto nines = ExactNumber::FromDecimal(std::string(period.size(), '9') +
                                              std::string(decimals, '0'));
  if (!digits.has_value() || !nines.has_value()) return std::nullopt;
  return Sum(ExactValue(*value.exact),
             Quotient(ExactValue(*digits), ExactValue(*nines)));
}

std::optional<MathValue> ValueParser::Mixed(const MathValue& whole) {
  const size_t begin = tokens_.at();
  tokens_.TakeCommand("frac");
  const auto arguments = TwoArguments();
  const auto is_integer = [](const MathValue& value) {
    return value.exact.has_value() && value.exact->is_integer();
  };
  if (!arguments.has_value()) return std::nullopt;
  if (is_integer(arguments->first) && is_integer(arguments->second)) {
    return Sum(whole, Quotient(arguments->first, arguments->second));
  }
  fraction_ = Fraction{.begin = begin,
                       .end = tokens_.at(),
                       .digits_taken = tokens_.digits_taken(),
                       .sign = both_signs_.sign,
                       .in_bars = in_bars_,
                       .value = Quotient(arguments->first, arguments->second)};
  tokens_.GoTo(begin);
  return whole;
}

std::optional<MathValue> ValueParser::TakeFraction(size_t begin) {
  const std::optional<Fraction> fraction =
      std::exchange(fraction_, std::nullopt);
  if (!fraction.has_value() || fraction->begin != begin ||
      fraction->sign != both_signs_.sign || fraction->in_bars != in_bars_) {
    return std::nullopt;
  }
  tokens_.GoTo(fraction->end, fraction->digits_taken);
  return fraction->value;
}

}  // namespace dapd
