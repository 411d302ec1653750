// MathValue: what an expression is worth, as a grader needs it: exactly where
// it is a rational number, and at some points of its variables, so that two
// expressions can be told apart without algebra (Schwartz 1980: two that differ
// agree at random points with probability nearly 0).
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "common/data/grading/exact_number.h"

namespace dapd {

struct MathValue {
  static constexpr size_t kPoints = 6;
  using Complex = std::complex<long double>;

  std::optional<ExactNumber> exact;  // none: irrational, symbolic or not known
  // NaN where it is not defined, or too large for what it is made of.
  std::array<Complex, kPoints> at;
  bool has_variables = false;
  // Written with a decimal point, and so perhaps rounded: a literal or its
  // negative or percentage.
  bool is_decimal = false;
  // An integer in per cent, whose value is a hundredth of it.
  std::optional<ExactNumber> percent;
  // The name of a variable that stands alone.
  std::string symbol;
};

// Nothing for what is no exact integer of at most 62 bits.
std::optional<int64_t> IntegerOf(const MathValue& a);

MathValue ExactValue(const ExactNumber& number);
MathValue FloatValue(MathValue::Complex number);
// The points of a variable are a function of its name.
MathValue VariableValue(const std::string& name);

// What is made of exact numbers is exact, or undefined where it is too large
// for that (exact_number.h).
MathValue Negated(const MathValue& a);
MathValue Sum(const MathValue& a, const MathValue& b);
MathValue Difference(const MathValue& a, const MathValue& b);
MathValue Product(const MathValue& a, const MathValue& b);
MathValue Quotient(const MathValue& a, const MathValue& b);
// Real for a negative number where `exponent` is a fraction whose denominator
// is odd, as Root is.
MathValue Power(const MathValue& base, const MathValue& exponent);
// The real root of a negative number where `degree` is an odd integer.
MathValue Root(const MathValue& a, const MathValue& degree);
MathValue Factorial(const MathValue& a);
MathValue Binomial(const MathValue& n, const MathValue& k);
MathValue Percentage(const MathValue& a);
// "sin", ..., "arctan", "ln", "log" (base 10), "exp", "abs", "floor", "ceil";
// nothing for another name.
std::optional<MathValue> FunctionValue(absl::string_view name,
                                       const MathValue& a);

// Equal exactly, or at all points where both are defined up to rounding (1e-10
// of their size). A number with a decimal point equals what it is when both are
// rounded to six decimals (to six digits below 0.001), an integer percentage
// also the integer itself: the rules of math-verify.
bool SameValue(const MathValue& a, const MathValue& b);

// The number c with a = c b at all points, if there is one that is not 0.
std::optional<long double> ConstantRatio(const MathValue& a,
                                         const MathValue& b);

}  // namespace dapd
