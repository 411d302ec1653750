// ExactNumber is a rational number of any size up to a limit, so that numeric
// answers are compared without rounding. OpenSSL's integers do the arithmetic.
#pragma once

#include <openssl/bn.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"

namespace dapd {

// Immutable; copies share the digits. An operation returns nothing if its
// numerator and denominator would exceed 32,768 bits together, or if it would
// divide by zero.
class ExactNumber {
 public:
  static ExactNumber Of(int64_t value);
  // Reads digits with at most one point and no sign: "12", "1.25", ".5".
  // Returns nothing for any other text, or for more than 1,000 digits.
  static std::optional<ExactNumber> FromDecimal(absl::string_view text);
  // Returns n (n - 1) ... (n - count + 1); requires 0 <= count <= n.
  static std::optional<ExactNumber> FallingFactorial(int64_t n, int64_t count);

  ExactNumber Negated() const;
  std::optional<ExactNumber> Plus(const ExactNumber& other) const;
  std::optional<ExactNumber> Times(const ExactNumber& other) const;
  std::optional<ExactNumber> Over(const ExactNumber& other) const;
  std::optional<ExactNumber> Power(int64_t exponent) const;

  bool operator==(const ExactNumber& other) const;
  bool is_zero() const;
  // Returns the number if it is an integer of at most 62 bits.
  std::optional<int64_t> ToInteger() const;
  bool is_integer() const;
  // Returns the exponent of 2 in a number that is not 0; it is negative if 2
  // divides the denominator: -3 for 5/8, 0 where both are odd.
  int PowerOfTwo() const;
  // Rounds to 63 bits; returns infinity outside the range of long double.
  long double ToFloat() const;

 private:
  using Integer = std::shared_ptr<const BIGNUM>;
  ExactNumber(Integer numerator, Integer denominator);

  Integer numerator_;    // with the sign
  Integer denominator_;  // positive; the quotient need not be in lowest terms
};

}  // namespace dapd
