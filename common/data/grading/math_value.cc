#include "common/data/grading/math_value.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numbers>

namespace dapd {
namespace {

using Complex = MathValue::Complex;

constexpr long double kTolerance = 1e-10L;
constexpr long double kNothing = 1e-15L;
// Both values must be defined at this number of points.
constexpr size_t kNeededPoints = 3;

const Complex kUndefined(std::numeric_limits<long double>::quiet_NaN(), 0);

bool IsUndefined(const Complex& z) {
  return std::isnan(z.real()) || std::isnan(z.imag());
}

bool IsInfinite(const Complex& z) { return std::isinf(z.real()); }

// Computes FNV-1a, followed by splitmix64's mixing.
uint64_t Hash(absl::string_view text, uint64_t salt) {
  uint64_t hash = 14695981039346656037ULL ^ salt * 0x9E3779B97F4A7C15ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

template <typename Operation>
MathValue Pointwise(const MathValue& a,
                    const MathValue& b,
                    const Operation& operation) {
  MathValue result;
  result.has_variables = a.has_variables || b.has_variables;
  for (size_t i = 0; i < MathValue::kPoints; ++i) {
    result.at[i] = operation(a.at[i], b.at[i]);
    // A result that overflows is undefined; only \infty is infinite.
    if (IsInfinite(result.at[i]) && !IsInfinite(a.at[i]) &&
        !IsInfinite(b.at[i])) {
      result.at[i] = kUndefined;
    }
  }
  return result;
}

template <typename Operation>
MathValue Pointwise(const MathValue& a, const Operation& operation) {
  return Pointwise(a, a, [&](const Complex& x, const Complex& /*same*/) {
    return operation(x);
  });
}

// Returns the result of an operation on exact numbers. It is undefined if it is
// too large to be exact: if it were rounded, it would equal its neighbours.
MathValue ExactOrUndefined(const std::optional<ExactNumber>& exact) {
  return exact.has_value() ? ExactValue(*exact) : FloatValue(kUndefined);
}

bool AreExact(const MathValue& a, const MathValue& b) {
  return a.exact.has_value() && b.exact.has_value();
}

bool ClosePoints(const Complex& x, const Complex& y) {
  if (IsInfinite(x) || IsInfinite(y)) return x.real() == y.real();
  return std::abs(x - y) <=
         kTolerance * std::max(std::abs(x), std::abs(y)) + kNothing;
}

bool SameWhenRounded(const MathValue& a, const MathValue& b) {
  const Complex x = a.at[0];
  const Complex y = b.at[0];
  if (a.has_variables || b.has_variables || IsUndefined(x) || IsUndefined(y) ||
      std::abs(x.imag()) > kTolerance || std::abs(y.imag()) > kTolerance) {
    return false;
  }
  constexpr long double kSmall = 1e-3L;
  if (std::abs(x) < kSmall && std::abs(y) < kSmall) {
    return std::abs(x - y) <= 1e-6L * std::max(std::abs(x), std::abs(y));
  }
  return std::nearbyint(x.real() * 1e6L) == std::nearbyint(y.real() * 1e6L);
}

}  // namespace

std::optional<int64_t> IntegerOf(const MathValue& a) {
  return a.exact.has_value() ? a.exact->ToInteger() : std::nullopt;
}

MathValue ExactValue(const ExactNumber& number) {
  const long double rounded = number.ToFloat();
  MathValue value = FloatValue(std::isinf(rounded) ? kUndefined : rounded);
  value.exact = number;
  return value;
}

MathValue FloatValue(Complex number) {
  MathValue value;
  value.at.fill(number);
  return value;
}

MathValue VariableValue(const std::string& name) {
  MathValue value;
  value.has_variables = true;
  value.symbol = name;
  for (size_t i = 0; i < MathValue::kPoints; ++i) {
    // The points are between 0.3 and 3, with both signs.
    const long double share =
        static_cast<long double>(Hash(name, i) >> 11) / (1LL << 53);
    value.at[i] = (i % 2 == 0 ? 1 : -1) * (0.3L + 2.7L * share);
  }
  return value;
}

MathValue Negated(const MathValue& a) {
  MathValue result = a.exact.has_value()
                         ? ExactValue(a.exact->Negated())
                         : Pointwise(a, [](const Complex& x) { return -x; });
  result.is_decimal = a.is_decimal;
  if (a.percent.has_value()) result.percent = a.percent->Negated();
  return result;
}

MathValue Sum(const MathValue& a, const MathValue& b) {
  if (AreExact(a, b)) return ExactOrUndefined(a.exact->Plus(*b.exact));
  return Pointwise(a, b, std::plus<>());
}

MathValue Difference(const MathValue& a, const MathValue& b) {
  return Sum(a, Negated(b));
}

MathValue Product(const MathValue& a, const MathValue& b) {
  if (AreExact(a, b)) return ExactOrUndefined(a.exact->Times(*b.exact));
  return Pointwise(a, b, std::multiplies<>());
}

MathValue Quotient(const MathValue& a, const MathValue& b) {
  if (AreExact(a, b)) return ExactOrUndefined(a.exact->Over(*b.exact));
  return Pointwise(a, b, [](const Complex& x, const Complex& y) {
    return y == Complex(0) ? kUndefined : x / y;
  });
}

MathValue Power(const MathValue& base, const MathValue& exponent) {
  if (AreExact(base, exponent) && exponent.exact->is_integer()) {
    const std::optional<int64_t> integer = exponent.exact->ToInteger();
    return ExactOrUndefined(integer.has_value() ? base.exact->Power(*integer)
                                                : std::nullopt);
  }
  const bool is_known =
      exponent.exact.has_value() && !exponent.exact->is_zero();
  const int twos = is_known ? exponent.exact->PowerOfTwo() : -1;
  return Pointwise(base, exponent, [&](const Complex& x, const Complex& y) {
    if (x == Complex(0)) return y.real() > 0 ? Complex(0) : kUndefined;
    if (twos >= 0 && x.imag() == 0 && x.real() < 0) {
      return twos > 0 ? std::pow(-x, y) : -std::pow(-x, y);
    }
    return std::pow(x, y);
  });
}

MathValue Root(const MathValue& a, const MathValue& degree) {
  const std::optional<int64_t> integer = IntegerOf(degree);
  const bool is_odd = integer.has_value() && *integer % 2 != 0;
  return Pointwise(a, degree, [&](const Complex& x, const Complex& n) {
    if (n == Complex(0)) return kUndefined;
    if (is_odd && x.imag() == 0 && x.real() < 0) {
      return -std::pow(-x, Complex(1) / n);
    }
    return x == Complex(0) ? x : std::pow(x, Complex(1) / n);
  });
}

MathValue Factorial(const MathValue& a) {
  const std::optional<int64_t> n = IntegerOf(a);
  if (n.has_value() && *n >= 0) {
    return ExactOrUndefined(ExactNumber::FallingFactorial(*n, *n));
  }
  return Pointwise(a, [](const Complex& x) {
    return x.imag() != 0 ? kUndefined : Complex(std::tgamma(x.real() + 1));
  });
}

MathValue Binomial(const MathValue& n, const MathValue& k) {
  const std::optional<int64_t> top = IntegerOf(n);
  const std::optional<int64_t> bottom = IntegerOf(k);
  if (top.has_value() && bottom.has_value() && *bottom >= 0 &&
      *bottom <= *top) {
    const int64_t count = std::min(*bottom, *top - *bottom);
    return Quotient(
        ExactOrUndefined(ExactNumber::FallingFactorial(*top, count)),
        ExactOrUndefined(ExactNumber::FallingFactorial(count, count)));
  }
  return Quotient(Factorial(n),
                  Product(Factorial(k), Factorial(Difference(n, k))));
}

MathValue Percentage(const MathValue& a) {
  MathValue result = Quotient(a, ExactValue(ExactNumber::Of(100)));
  result.is_decimal = a.is_decimal;
  if (a.exact.has_value() && !a.is_decimal && a.exact->is_integer()) {
    result.percent = a.exact;
  }
  return result;
}

std::optional<MathValue> FunctionValue(absl::string_view name,
                                       const MathValue& a) {
  using Function = Complex (*)(const Complex&);
  static const auto& functions = *new std::map<absl::string_view, Function>{
      {"sin", [](const Complex& x) { return std::sin(x); }},
      {"cos", [](const Complex& x) { return std::cos(x); }},
      {"tan", [](const Complex& x) { return std::tan(x); }},
      {"cot", [](const Complex& x) { return Complex(1) / std::tan(x); }},
      {"sec", [](const Complex& x) { return Complex(1) / std::cos(x); }},
      {"csc", [](const Complex& x) { return Complex(1) / std::sin(x); }},
      {"sinh", [](const Complex& x) { return std::sinh(x); }},
      {"cosh", [](const Complex& x) { return std::cosh(x); }},
      {"tanh", [](const Complex& x) { return std::tanh(x); }},
      {"arcsin", [](const Complex& x) { return std::asin(x); }},
      {"arccos", [](const Complex& x) { return std::acos(x); }},
      {"arctan", [](const Complex& x) { return std::atan(x); }},
      {"exp", [](const Complex& x) { return std::exp(x); }},
      {"ln",
       [](const Complex& x) {
         return x == Complex(0) ? kUndefined : std::log(x);
       }},
      {"log",
       [](const Complex& x) {
         return x == Complex(0)
                    ? kUndefined
                    : std::log(x) / std::numbers::ln10_v<long double>;
       }},
      {"abs", [](const Complex& x) { return Complex(std::abs(x)); }},
      {"floor",
       [](const Complex& x) {
         return x.imag() != 0 ? kUndefined : Complex(std::floor(x.real()));
       }},
      {"ceil", [](const Complex& x) {
         return x.imag() != 0 ? kUndefined : Complex(std::ceil(x.real()));
       }}};
  const auto found = functions.find(name);
  if (found == functions.end()) return std::nullopt;
  return Pointwise(a, found->second);
}

bool SameValue(const MathValue& a, const MathValue& b) {
  if (a.percent.has_value() != b.percent.has_value()) {
    const MathValue& percent = a.percent.has_value() ? a : b;
    const MathValue& plain = a.percent.has_value() ? b : a;
    if (plain.exact.has_value() && *plain.exact == *percent.percent)
      return true;
  }
  if ((a.is_decimal || b.is_decimal) && SameWhenRounded(a, b)) return true;
  if (a.exact.has_value() && b.exact.has_value()) return *a.exact == *b.exact;
  size_t compared = 0;
  for (size_t i = 0; i < MathValue::kPoints; ++i) {
    const bool undefined = IsUndefined(a.at[i]);
    if (undefined != IsUndefined(b.at[i])) return false;
    if (undefined) continue;
    if (!ClosePoints(a.at[i], b.at[i])) return false;
    ++compared;
  }
  return compared >= kNeededPoints;
}

std::optional<long double> ConstantRatio(const MathValue& a,
                                         const MathValue& b) {
  std::optional<Complex> ratio;
  for (size_t i = 0; i < MathValue::kPoints; ++i) {
    const Complex& x = a.at[i];
    const Complex& y = b.at[i];
    if (IsUndefined(x) || IsUndefined(y) || IsInfinite(x) || IsInfinite(y) ||
        std::abs(x) < kNothing || std::abs(y) < kNothing) {
      return std::nullopt;
    }
    const Complex here = x / y;
    if (ratio.has_value() && !ClosePoints(here, *ratio)) return std::nullopt;
    ratio = here;
  }
  if (std::abs(ratio->imag()) > kTolerance * std::abs(*ratio)) {
    return std::nullopt;
  }
  return ratio->real();
}

}  // namespace dapd
