// MathValue is the value of an expression as a grader needs it: exact if it is
// a rational number, and computed at some points of its variables. The points
// distinguish expressions without algebra: two different expressions agree at
// random points with a probability near 0 (Schwartz 1980).
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

  std::optional<ExactNumber> exact;  // unset: irrational, symbolic or unknown
  // The numbers are NaN where the value is undefined, or too large to be
  // computed.
  std::array<Complex, kPoints> at;
  bool has_variables = false;
  // Whether the value was written with a decimal point and may be rounded: a
  // literal, its negative or its percentage.
  bool is_decimal = false;
  // The integer n of the percentage "n %", whose value is n / 100.
  std::optional<ExactNumber> percent;
  // The name of a variable that stands alone.
  std::string symbol;
};

// Returns nothing if `a` is not an exact integer of at most 62 bits.
std::optional<int64_t> IntegerOf(const MathValue& a);

MathValue ExactValue(const ExactNumber& number);
MathValue FloatValue(MathValue::Complex number);
// The name decides the points of the variable.
MathValue VariableValue(const std::string& name);

// Operations on exact numbers return exact numbers, or undefined values if
// these would be too large (exact_number.h).
MathValue Negated(const MathValue& a);
MathValue Sum(const MathValue& a, const MathValue& b);
MathValue Difference(const MathValue& a, const MathValue& b);
MathValue Product(const MathValue& a, const MathValue& b);
MathValue Quotient(const MathValue& a, const MathValue& b);
// Returns a real value for a negative base if `exponent` is a fraction with an
// odd denominator, as for Root.
MathValue Power(const MathValue& base, const MathValue& exponent);
// Returns the real root of a negative number if `degree` is an odd integer.
MathValue Root(const MathValue& a, const MathValue& degree);
MathValue Factorial(const MathValue& a);
MathValue Binomial(const MathValue& n, const MathValue& k);
MathValue Percentage(const MathValue& a);
// `name` is "sin", ..., "arctan", "ln", "log" (base 10), "exp", "abs", "floor"
// or "ceil". Returns nothing for any other name.
std::optional<MathValue> FunctionValue(absl::string_view name,
                                       const MathValue& a);

// Returns whether the values are equal exactly, or up to rounding (1e-10 of
// their size) at all points where both are defined. By the rules of
// math-verify, a number with a decimal point also equals a number that is the
// same after both are rounded to six decimals (to six digits below 0.001), and
// an integer percentage also equals the integer itself.
bool SameValue(const MathValue& a, const MathValue& b);

// Returns the number c with a = c b at all points, if there is such a number
// other than 0.
std::optional<long double> ConstantRatio(const MathValue& a,
                                         const MathValue& b);

}  // namespace dapd
