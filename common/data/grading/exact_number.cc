#include "common/data/grading/exact_number.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

namespace dapd {
namespace {

constexpr int kMaxBits = 1 << 15;
constexpr size_t kMaxDigits = 1000;
constexpr int kWordBits = 64;

using Mutable = std::shared_ptr<BIGNUM>;

Mutable NewInteger() {
  BIGNUM* integer = BN_new();
  if (integer == nullptr) throw std::bad_alloc();
  return Mutable(integer, BN_free);
}

BN_CTX* Context() {
  thread_local const std::unique_ptr<BN_CTX, void (*)(BN_CTX*)> context(
      BN_CTX_new(), BN_CTX_free);
  if (context == nullptr) throw std::bad_alloc();
  return context.get();
}

// These functions of OpenSSL fail only if memory is short.
void Must(int succeeded) {
  if (succeeded != 1) throw std::bad_alloc();
}

Mutable Product(const BIGNUM* a, const BIGNUM* b) {
  Mutable product = NewInteger();
  Must(BN_mul(product.get(), a, b, Context()));
  return product;
}

bool Fit(const BIGNUM* numerator, const BIGNUM* denominator) {
  return BN_num_bits(numerator) + BN_num_bits(denominator) <= kMaxBits;
}

// `integer` must not be 0.
int TrailingZeros(const BIGNUM* integer) {
  int zeros = 0;
  while (BN_is_bit_set(integer, zeros) == 0) ++zeros;
  return zeros;
}

// Returns the magnitude of `integer` without its last `*dropped` bits, so that
// the rest fits into a word.
long double LeadingBits(const BIGNUM* integer, int* dropped) {
  *dropped = std::max(BN_num_bits(integer) - kWordBits, 0);
  Mutable leading = NewInteger();
  Must(BN_rshift(leading.get(), integer, *dropped));
  return static_cast<long double>(BN_get_word(leading.get()));
}

}  // namespace

ExactNumber::ExactNumber(Integer numerator, Integer denominator)
    : numerator_(std::move(numerator)), denominator_(std::move(denominator)) {}

ExactNumber ExactNumber::Of(int64_t value) {
  Mutable numerator = NewInteger();
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value)
                                  : static_cast<uint64_t>(value);
  Must(BN_set_word(numerator.get(), size));
  BN_set_negative(numerator.get(), value < 0 ? 1 : 0);
  Mutable one = NewInteger();
  Must(BN_one(one.get()));
  return {numerator, one};
}

std::optional<ExactNumber> ExactNumber::FromDecimal(absl::string_view text) {
  std::string digits;
  std::optional<size_t> decimals;
  for (const char c : text) {
    if (c == '.') {
      if (decimals.has_value()) return std::nullopt;
      decimals = 0;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      digits.push_back(c);
      if (decimals.has_value()) ++*decimals;
    } else {
      return std::nullopt;
    }
  }
  if (digits.empty() || digits.size() > kMaxDigits) return std::nullopt;
  const auto parse = [](const std::string& decimal) {
    BIGNUM* integer = nullptr;
    if (BN_dec2bn(&integer, decimal.c_str()) == 0) throw std::bad_alloc();
    return Mutable(integer, BN_free);
  };
  return ExactNumber(parse(digits),
                     parse("1" + std::string(decimals.value_or(0), '0')));
}

std::optional<ExactNumber> ExactNumber::FallingFactorial(int64_t n,
                                                         int64_t count) {
  Mutable product = NewInteger();
  Mutable one = NewInteger();
  Must(BN_one(product.get()));
  Must(BN_one(one.get()));
  BN_ULONG word = 1;  // factors that are not yet in the product
  for (int64_t i = 0; i < count; ++i) {
    const auto factor = static_cast<BN_ULONG>(n - i);
    BN_ULONG longer = 0;
    if (__builtin_mul_overflow(word, factor, &longer)) {
      Must(BN_mul_word(product.get(), word));
      if (!Fit(product.get(), one.get())) return std::nullopt;
      longer = factor;
    }
    word = longer;
  }
  Must(BN_mul_word(product.get(), word));
  if (!Fit(product.get(), one.get())) return std::nullopt;
  return ExactNumber(product, one);
}

ExactNumber ExactNumber::Negated() const {
  Mutable numerator = NewInteger();
  if (BN_copy(numerator.get(), numerator_.get()) == nullptr) {
    throw std::bad_alloc();
  }
  BN_set_negative(numerator.get(), BN_is_negative(numerator.get()) == 0);
  return {numerator, denominator_};
}

std::optional<ExactNumber> ExactNumber::Plus(const ExactNumber& other) const {
  Mutable numerator = NewInteger();
  Must(BN_add(numerator.get(),
              Product(numerator_.get(), other.denominator_.get()).get(),
              Product(other.numerator_.get(), denominator_.get()).get()));
  Mutable denominator = Product(denominator_.get(), other.denominator_.get());
  if (!Fit(numerator.get(), denominator.get())) return std::nullopt;
  return ExactNumber(numerator, denominator);
}

std::optional<ExactNumber> ExactNumber::Times(const ExactNumber& other) const {
  Mutable numerator = Product(numerator_.get(), other.numerator_.get());
  Mutable denominator = Product(denominator_.get(), other.denominator_.get());
  if (!Fit(numerator.get(), denominator.get())) return std::nullopt;
  return ExactNumber(numerator, denominator);
}

std::optional<ExactNumber> ExactNumber::Over(const ExactNumber& other) const {
  if (other.is_zero()) return std::nullopt;
  const bool negative = BN_is_negative(other.numerator_.get()) != 0;
  const ExactNumber positive = negative ? other.Negated() : other;
  const ExactNumber inverse(positive.denominator_, positive.numerator_);
  std::optional<ExactNumber> quotient = Times(inverse);
  if (quotient.has_value() && negative) return quotient->Negated();
  return quotient;
}

std::optional<ExactNumber> ExactNumber::Power(int64_t exponent) const {
  std::optional<ExactNumber> base = *this;
  if (exponent < 0) {
    base = Of(1).Over(*this);
    exponent = -exponent;
  }
  ExactNumber power = Of(1);
  // This loop squares and multiplies. It ends at the limit if the base grows;
  // the base 1 does not grow.
  for (; base.has_value(); base = base->Times(*base)) {
    if (exponent % 2 == 1) {
      const std::optional<ExactNumber> product = power.Times(*base);
      if (!product.has_value()) return std::nullopt;
      power = *product;
    }
    exponent /= 2;
    if (exponent == 0) return power;
  }
  return std::nullopt;
}

bool ExactNumber::operator==(const ExactNumber& other) const {
  if (is_zero() || other.is_zero()) return is_zero() == other.is_zero();
  // Lists are compared all with all, and products of large numbers are
  // expensive.
  if (BN_cmp(numerator_.get(), other.numerator_.get()) == 0 &&
      BN_cmp(denominator_.get(), other.denominator_.get()) == 0) {
    return true;
  }
  const int more_bits =
      BN_num_bits(numerator_.get()) + BN_num_bits(other.denominator_.get()) -
      BN_num_bits(other.numerator_.get()) - BN_num_bits(denominator_.get());
  if (std::abs(more_bits) > 1) return false;
  return BN_cmp(Product(numerator_.get(), other.denominator_.get()).get(),
                Product(other.numerator_.get(), denominator_.get()).get()) == 0;
}

bool ExactNumber::is_zero() const { return BN_is_zero(numerator_.get()) != 0; }

bool ExactNumber::is_integer() const {
  Mutable rest = NewInteger();
  Must(BN_div(
      nullptr, rest.get(), numerator_.get(), denominator_.get(), Context()));
  return BN_is_zero(rest.get()) != 0;
}

int ExactNumber::PowerOfTwo() const {
  return TrailingZeros(numerator_.get()) - TrailingZeros(denominator_.get());
}

std::optional<int64_t> ExactNumber::ToInteger() const {
  Mutable quotient = NewInteger();
  Mutable rest = NewInteger();
  Must(BN_div(quotient.get(),
              rest.get(),
              numerator_.get(),
              denominator_.get(),
              Context()));
  if (BN_is_zero(rest.get()) == 0 || BN_num_bits(quotient.get()) > 62) {
    return std::nullopt;
  }
  const auto size = static_cast<int64_t>(BN_get_word(quotient.get()));
  return BN_is_negative(quotient.get()) != 0 ? -size : size;
}

long double ExactNumber::ToFloat() const {
  int above = 0;
  int below = 0;
  const long double numerator = LeadingBits(numerator_.get(), &above);
  const long double denominator = LeadingBits(denominator_.get(), &below);
  const long double size = std::ldexp(numerator / denominator, above - below);
  return BN_is_negative(numerator_.get()) != 0 ? -size : size;
}

}  // namespace dapd
