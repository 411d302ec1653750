#include "common/data/grading/exact_number.h"

#include <cctype>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

namespace dapd {
namespace {

constexpr int kMaxBits = 4096;
constexpr size_t kMaxDigits = 1000;
constexpr int64_t kMaxExponent = kMaxBits;

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

// OpenSSL's functions fail only without memory.
void Must(int succeeded) {
  if (succeeded != 1) throw std::bad_alloc();
}

Mutable Product(const BIGNUM* a, const BIGNUM* b) {
  Mutable product = NewInteger();
  Must(BN_mul(product.get(), a, b, Context()));
  return product;
}

bool Fits(const BIGNUM* integer) { return BN_num_bits(integer) <= kMaxBits; }

long double FloatOf(const BIGNUM* integer) {
  char* digits = BN_bn2dec(integer);
  if (digits == nullptr) throw std::bad_alloc();
  const long double value = std::strtold(digits, nullptr);
  OPENSSL_free(digits);
  return value;
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
  if (!Fits(numerator.get()) || !Fits(denominator.get())) return std::nullopt;
  return ExactNumber(numerator, denominator);
}

std::optional<ExactNumber> ExactNumber::Times(const ExactNumber& other) const {
  Mutable numerator = Product(numerator_.get(), other.numerator_.get());
  Mutable denominator = Product(denominator_.get(), other.denominator_.get());
  if (!Fits(numerator.get()) || !Fits(denominator.get())) return std::nullopt;
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
  if (exponent < -kMaxExponent || exponent > kMaxExponent) return std::nullopt;
  std::optional<ExactNumber> base = *this;
  if (exponent < 0) {
    base = Of(1).Over(*this);
    exponent = -exponent;
  }
  ExactNumber power = Of(1);
  // Square and multiply; what grows past the limit ends it.
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
  return FloatOf(numerator_.get()) / FloatOf(denominator_.get());
}

}  // namespace dapd
