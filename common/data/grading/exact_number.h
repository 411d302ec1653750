// ExactNumber: a rational number of any size up to a limit, so that answers
// that are numbers are compared without rounding. OpenSSL's integers do the
// arithmetic.
#pragma once

#include <openssl/bn.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/strings/string_view.h"

namespace dapd {

// Immutable; copies share the digits. An operation whose numerator and
// denominator would together exceed 32,768 bits, and a division by zero, give
// nothing.
class ExactNumber {
 public:
  static ExactNumber Of(int64_t value);
  // "12", "1.25", ".5": digits with at most one point and no sign. Nothing for
  // any other text, or more than 1,000 digits.
  static std::optional<ExactNumber> FromDecimal(absl::string_view text);
  // n (n - 1) ... (n - count + 1), where 0 <= count <= n.
  static std::optional<ExactNumber> FallingFactorial(int64_t n, int64_t count);

  ExactNumber Negated() const;
  std::optional<ExactNumber> Plus(const ExactNumber& other) const;
  std::optional<ExactNumber> Times(const ExactNumber& other) const;
  std::optional<ExactNumber> Over(const ExactNumber& other) const;
  std::optional<ExactNumber> Power(int64_t exponent) const;

  bool operator==(const ExactNumber& other) const;
  bool is_zero() const;
  // The number itself if it is an integer of at most 62 bits.
  std::optional<int64_t> ToInteger() const;
  bool is_integer() const;
  // How often 2 divides a number that is not 0; negative for what it divides in
  // the denominator: -3 of 5/8, 0 where both are odd.
  int PowerOfTwo() const;
  // Rounded to 63 bits; infinite past the range.
  long double ToFloat() const;

 private:
  using Integer = std::shared_ptr<const BIGNUM>;
  ExactNumber(Integer numerator, Integer denominator);

  Integer numerator_;    // with the sign
  Integer denominator_;  // positive; the quotient need not be in lowest terms
};

}  // namespace dapd
