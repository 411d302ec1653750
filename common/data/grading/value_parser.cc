#include "common/data/grading/value_parser.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/data/grading/exact_number.h"

namespace dapd {
namespace {

using Kind = LatexToken::Kind;

constexpr size_t kMaxRatioParts = 256;

}  // namespace

std::optional<std::vector<MathValue>> ValueParser::RatioOf() {
  std::vector<MathValue> parts;
  do {
    auto part = SumOf();
    if (!part.has_value() || parts.size() >= kMaxRatioParts) {
      return std::nullopt;
    }
    parts.push_back(*std::move(part));
  } while (tokens_.Take(":"));
  if (parts.size() == 1) return parts;
  if (parts.size() == 2) return std::vector{Quotient(parts[0], parts[1])};
  const MathValue zero = ExactValue(ExactNumber::Of(0));
  const auto unit = std::ranges::find_if_not(
      parts, [&](const MathValue& part) { return SameValue(part, zero); });
  if (unit == parts.end()) return std::nullopt;
  const MathValue divisor = *unit;
  for (MathValue& part : parts) part = Quotient(part, divisor);
  return parts;
}

std::optional<MathValue> ValueParser::SumOf() {
  const TokenReader::Level level(tokens_);
  if (level.is_too_deep()) return std::nullopt;
  const auto above = TermsOf();
  const bool chooses = tokens_.TakeCommand("choose");
  if (!above.has_value() || (!chooses && !tokens_.TakeCommand("over"))) {
    return above;
  }
  const auto below = SumOf();
  if (!below.has_value()) return std::nullopt;
  return chooses ? Binomial(*above, *below) : Quotient(*above, *below);
}

std::optional<MathValue> ValueParser::TermsOf() {
  std::optional<MathValue> sum;
  while (true) {
    int sign = 1;
    bool has_sign = false;
    while (true) {
      if (tokens_.Take("-")) {
        sign = -sign;
      } else if (tokens_.TakeCommand("pm")) {
        both_signs_.are_there = true;
        sign *= both_signs_.sign;
      } else if (tokens_.TakeCommand("mp")) {
        both_signs_.are_there = true;
        sign *= -both_signs_.sign;
      } else if (!tokens_.Take("+")) {
        break;
      }
      has_sign = true;
    }
    if (sum.has_value() && !has_sign) return sum;
    auto product = ProductOf();
    if (!product.has_value()) return std::nullopt;
    MathValue term =
        sign > 0 ? *std::move(product) : Negated(*std::move(product));
    sum = sum.has_value() ? Sum(*sum, term) : std::move(term);
  }
}

bool ValueParser::StartsFactor() const {
  if (tokens_.at_end()) return false;
  switch (tokens_.here().kind) {
    case Kind::kNumber:
    case Kind::kLetter:
      return true;
    case Kind::kCommand: {
      const std::string& name = tokens_.here().text;
      return name != "cup" && name != "cap" && name != "in" && name != "end" &&
             name != "pm" && name != "mp" && name != "mod" &&
             name != "rfloor" && name != "rceil" && name != "setminus" &&
             name != "to" && name != "Rightarrow" && name != "begin" &&
             name != "over" && name != "choose";
    }
    case Kind::kSymbol:
      return tokens_.Sees("(") || tokens_.Sees("{") ||
             (tokens_.Sees("[") && !in_bars_) ||
             (tokens_.Sees("|") && !in_bars_);
    case Kind::kText:
    case Kind::kWord:
      return false;
  }
  return false;
}

bool ValueParser::FollowsNumber(size_t begin) const {
  return tokens_.SeesKind(Kind::kNumber) && tokens_.digits_taken() == 0 &&
         tokens_.TokenAt(begin).kind == Kind::kNumber &&
         tokens_.TokenAt(tokens_.at() - 1).kind == Kind::kNumber;
}

std::optional<MathValue> ValueParser::ProductOf() {
  size_t begin = tokens_.at();
  auto product = PowerOf();
  if (!product.has_value()) return std::nullopt;
  while (!FollowsNumber(begin)) {
    const bool divides = tokens_.Sees("/");
    if (divides || (tokens_.Sees("*") &&
                    !tokens_.SeesCommandAt(tokens_.at() + 1, "begin"))) {
      tokens_.Next();
      int sign = 1;
      while (tokens_.Sees("-") || tokens_.Sees("+")) {
        if (tokens_.Take("-")) sign = -sign;
        tokens_.Take("+");
      }
      begin = tokens_.at();
      auto factor = PowerOf();
      if (!factor.has_value()) return std::nullopt;
      if (sign < 0) factor = Negated(*factor);
      product =
          divides ? Quotient(*product, *factor) : Product(*product, *factor);
    } else if (StartsFactor()) {
      begin = tokens_.at();
      auto factor = PowerOf();
      if (!factor.has_value()) return std::nullopt;
      product = Product(*product, *factor);
    } else {
      return product;
    }
  }
  return std::nullopt;
}

std::optional<MathValue> ValueParser::PowerOf() {
  const TokenReader::Level level(tokens_);
  if (level.is_too_deep()) return std::nullopt;
  auto base = Primary();
  while (base.has_value()) {
    if (tokens_.Take("!")) {
      base = Factorial(*base);
    } else if (tokens_.Take("%")) {
      base = Percentage(*base);
    } else if (tokens_.Take("^")) {
      const auto exponent = Script();
      if (!exponent.has_value()) return std::nullopt;
      base = Power(*base, *exponent);
    } else {
      break;
    }
  }
  return base;
}

std::optional<MathValue> ValueParser::Script(bool one_digit) {
  const TokenReader::Level level(tokens_);
  if (level.is_too_deep()) return std::nullopt;
  if (tokens_.Take("{")) {
    auto value = SumOf();
    if (!value.has_value() || !tokens_.Take("}")) return std::nullopt;
    return value;
  }
  if (tokens_.Take("-")) {
    auto value = Script(one_digit);
    if (!value.has_value()) return std::nullopt;
    return Negated(*value);
  }
  if (one_digit && tokens_.SeesKind(Kind::kNumber)) {
    const auto digit = ExactNumber::FromDecimal(tokens_.TakeDigit());
    if (!digit.has_value()) return std::nullopt;
    return ExactValue(*digit);
  }
  if (tokens_.SeesKind(Kind::kNumber)) return Number(/*may_be_mixed=*/false);
  return Primary();
}

std::optional<std::pair<MathValue, MathValue>> ValueParser::TwoArguments() {
  const auto first = Script(/*one_digit=*/true);
  if (!first.has_value()) return std::nullopt;
  const auto second = Script(/*one_digit=*/true);
  if (!second.has_value()) return std::nullopt;
  return std::pair(*first, *second);
}

std::optional<MathValue> ValueParser::Letter() {
  std::string name = tokens_.Next().text;
  if (tokens_.Take("_")) {
    // The subscript is part of the name.
    if (tokens_.Take("{")) {
      absl::StrAppend(&name, "_");
      while (!tokens_.at_end() && !tokens_.Sees("}")) {
        absl::StrAppend(&name, tokens_.Next().text);
      }
      if (!tokens_.Take("}")) return std::nullopt;
    } else if (!tokens_.at_end()) {
      absl::StrAppend(&name, "_", tokens_.Next().text);
    } else {
      return std::nullopt;
    }
  } else if (name == "e") {
    return FloatValue({std::numbers::e_v<long double>, 0});
  } else if (name == "i") {
    return FloatValue({0, 1});
  }
  return VariableValue(name);
}

std::optional<MathValue> ValueParser::Primary() {
  if (tokens_.at_end()) return std::nullopt;
  switch (tokens_.here().kind) {
    case Kind::kNumber:
      return Number(/*may_be_mixed=*/true);
    case Kind::kLetter:
      return Letter();
    case Kind::kCommand:
      return CommandValue();
    case Kind::kSymbol:
      return Grouped();
    case Kind::kText:
    case Kind::kWord:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<MathValue> ValueParser::Grouped() {
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("[", "]"), std::pair("{", "}")}) {
    if (!tokens_.Take(open)) continue;
    const bool bars = std::exchange(in_bars_, false);
    auto ratio = RatioOf();
    in_bars_ = bars;
    if (!ratio.has_value() || ratio->size() > 1 || !tokens_.Take(close)) {
      return std::nullopt;
    }
    return std::move(ratio->front());
  }
  if (!in_bars_ && tokens_.Take("|")) {
    in_bars_ = true;
    auto value = SumOf();
    in_bars_ = false;
    if (!value.has_value() || !tokens_.Take("|")) return std::nullopt;
    return FunctionValue("abs", *value);
  }
  return std::nullopt;
}

std::optional<MathValue> ValueParser::CommandValue() {
  if (const auto fraction = TakeFraction(tokens_.at())) return fraction;
  const std::string name = tokens_.Next().text;
  if (name == "pi") {
    return FloatValue({std::numbers::pi_v<long double>, 0});
  }
  if (name == "infty") {
    return FloatValue({std::numeric_limits<long double>::infinity(), 0});
  }
  if (name == "frac" || name == "binom") {
    const auto arguments = TwoArguments();
    if (!arguments.has_value()) return std::nullopt;
    return name == "frac" ? Quotient(arguments->first, arguments->second)
                          : Binomial(arguments->first, arguments->second);
  }
  if (name == "sqrt") return SquareRoot();
  if (name == "lfloor" || name == "lceil") {
    auto value = SumOf();
    if (!value.has_value() ||
        !tokens_.TakeCommand(name == "lfloor" ? "rfloor" : "rceil")) {
      return std::nullopt;
    }
    return FunctionValue(name.substr(1), *value);
  }
  return Function(name);
}

std::optional<MathValue> ValueParser::SquareRoot() {
  MathValue degree = ExactValue(ExactNumber::Of(2));
  if (tokens_.Take("[")) {
    const auto given = SumOf();
    if (!given.has_value() || !tokens_.Take("]")) return std::nullopt;
    degree = *given;
  }
  const auto radicand = Script(/*one_digit=*/false);
  if (!radicand.has_value()) return std::nullopt;
  return Root(*radicand, degree);
}

std::optional<MathValue> ValueParser::Function(const std::string& name) {
  const TokenReader::Level level(tokens_);
  if (level.is_too_deep()) return std::nullopt;
  if (!FunctionValue(name, ExactValue(ExactNumber::Of(1))).has_value()) {
    return std::nullopt;
  }
  std::optional<MathValue> base;
  std::optional<MathValue> power;
  if (tokens_.Take("_")) {
    base = Script(/*one_digit=*/false);
    if (!base.has_value()) return std::nullopt;
  }
  if (tokens_.Take("^")) {
    power = Script(/*one_digit=*/false);
    if (!power.has_value()) return std::nullopt;
  }
  const auto argument = Argument();
  if (!argument.has_value()) return std::nullopt;
  auto value = FunctionValue(base.has_value() ? "ln" : name, *argument);
  if (base.has_value()) {
    value = Quotient(*value, *FunctionValue("ln", *base));
  }
  if (power.has_value()) {
    const bool is_inverse =
        power->exact.has_value() && *power->exact == ExactNumber::Of(-1);
    const auto inverse = FunctionValue(absl::StrCat("arc", name), *argument);
    value = is_inverse && inverse.has_value() ? inverse : Power(*value, *power);
  }
  return value;
}

std::optional<MathValue> ValueParser::Argument() {
  if (tokens_.Sees("(") || tokens_.Sees("{") || tokens_.Sees("[") ||
      tokens_.Sees("|"))
    return Primary();
  const bool is_negative = tokens_.Take("-");
  size_t begin = tokens_.at();
  auto argument = PowerOf();
  while (argument.has_value() &&
         (tokens_.SeesKind(Kind::kNumber) || tokens_.SeesKind(Kind::kLetter) ||
          tokens_.SeesCommand("pi"))) {
    if (FollowsNumber(begin)) return std::nullopt;
    begin = tokens_.at();
    const auto factor = PowerOf();
    if (!factor.has_value()) return std::nullopt;
    argument = Product(*argument, *factor);
  }
  if (argument.has_value() && is_negative) argument = Negated(*argument);
  return argument;
}

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
