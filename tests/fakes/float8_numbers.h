// Numbers of a head rounded to Float8, by search among all Float8 values: an
// independent second implementation of common/kernels/float8.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/kernels/bfloat16.h"
#include "common/kernels/float8.h"

namespace dapd {

// Returns the value of e4m3 bits, by its definition.
inline double Float8Value(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const double fraction = (bits & 7) / 8.0;
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, -6)
                               : std::ldexp(1.0 + fraction, exponent - 7);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// Returns the bits of the value nearest to `value`; of two, the even one.
inline uint8_t NearestFloat8(double value) {
  static const std::vector<double> magnitudes = [] {
    std::vector<double> values;
    for (uint8_t bits = 0; bits < 0x7F; ++bits) {
      values.push_back(Float8Value(bits));
    }
    return values;
  }();
  const double magnitude = std::abs(value);
  uint8_t nearest = 0;
  for (uint8_t bits = 1; bits < magnitudes.size(); ++bits) {
    const double error = std::abs(magnitudes[bits] - magnitude);
    const double least = std::abs(magnitudes[nearest] - magnitude);
    if (error < least || (error == least && bits % 2 == 0)) nearest = bits;
  }
  return std::signbit(value) ? nearest | 0x80 : nearest;
}

struct Float8Numbers {
  double scale = 1.0;
  std::vector<Float8> numbers;

  // Returns what the numbers stand for.
  std::vector<BFloat16> Widened() const {
    std::vector<BFloat16> values;
    for (const Float8 number : numbers) {
      values.push_back(FromFloat<BFloat16>(
          static_cast<float>(scale * Float8Value(number.bits))));
    }
    return values;
  }
};

inline Float8Numbers RoundedToFloat8(const std::vector<BFloat16>& values) {
  double largest = 0.0;
  for (const BFloat16 value : values) {
    largest = std::max(largest, std::abs(double{ToFloat(value)}));
  }
  Float8Numbers rounded{.scale = std::ldexp(1.0, -126)};
  while (largest / rounded.scale > 448.0) rounded.scale *= 2.0;
  for (const BFloat16 value : values) {
    rounded.numbers.push_back({NearestFloat8(ToFloat(value) / rounded.scale)});
  }
  return rounded;
}

}  // namespace dapd
