// The vectors of the level that this file is compiled for. Only sources that
// are compiled once per CPU level may include it. Their functions live in a
// namespace of the level, so that no function compiled for a newer processor is
// ever linked into the code of an older processor. For the same reason they
// include no part of the standard library that has inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / 4;

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Words __attribute__((vector_size(kVectorBytes)));

template <typename Vector, typename Number>
inline Vector Load(const Number* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename Vector, typename Number>
inline void Store(const Vector& vector, Number* to) {
  __builtin_memcpy(to, &vector, sizeof(vector));
}

// Loads the first `count` lanes of a vector; the others become `fill`.
inline Floats LoadPart(const float* from, int64_t count, float fill) {
  if (count >= kLanes) return Load<Floats>(from);
  Floats vector = Floats{} + fill;
  for (int64_t i = 0; i < count; ++i) vector[i] = from[i];
  return vector;
}

inline void StorePart(const Floats& vector, int64_t count, float* to) {
  if (count >= kLanes) return Store(vector, to);
  for (int64_t i = 0; i < count; ++i) to[i] = vector[i];
}

// Adds lane after lane, so that the order is fixed.
inline float Sum(const Floats& vector) {
  float sum = 0.0F;
  for (int i = 0; i < kLanes; ++i) sum += vector[i];
  return sum;
}

inline float Largest(const Floats& vector) {
  float largest = vector[0];
  for (int i = 1; i < kLanes; ++i) {
    largest = vector[i] > largest ? vector[i] : largest;
  }
  return largest;
}

// Rounds to the nearest bfloat16, ties to even, and returns it as float32. A
// NaN stays a NaN; the addition alone would turn it into a number where all of
// its lower bits are set.
inline Floats RoundToBFloat16(const Floats& vector) {
  const Words bits = reinterpret_cast<Words>(vector);
  const Words rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U;
  const Words quiet_nan = Words{} + 0x7FC00000U;
  return reinterpret_cast<Floats>(vector != vector ? quiet_nan : rounded);
}

template <bool kRound>
inline Floats Rounded(const Floats& vector) {
  if constexpr (kRound) return RoundToBFloat16(vector);
  return vector;
}

// Returns exp to 2 units in the last place (Cephes: reduction by ln 2 in two
// parts, polynomial of degree 7), and 0 below -87.
inline Floats Exp(const Floats& x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: rounds to an integer
  const Floats capped = x > 88.0F ? Floats{} + 88.0F : x;
  const Floats clamped = capped < -87.0F ? Floats{} - 87.0F : capped;
  const Floats shifted = clamped * 1.44269504088896341F + kShift;
  const Floats n = shifted - kShift;
  const Floats r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  const Floats value = p * reinterpret_cast<Floats>(exponent);
  return x < -87.0F ? Floats{} : value;
}

// Returns log to 2 units in the last place (Cephes: polynomial of degree 8
// about 1) of normal numbers above 0.
inline Floats Log(const Floats& x) {
  const Ints bits = reinterpret_cast<Ints>(x);
  const Ints mantissa = (bits & 0x007FFFFF) | 0x3F000000;  // in [0.5, 1)
  const Floats m = reinterpret_cast<Floats>(mantissa);
  const Ints is_low = m < 0.707106781186547524F;  // -1 where it is
  const Floats exponent =
      __builtin_convertvector(((bits >> 23) & 0xFF) - 126 + is_low, Floats);
  const Floats r = (is_low ? m + m : m) - 1.0F;
  const Floats square = r * r;
  Floats p = r * 7.0376836292e-2F - 1.1514610310e-1F;
  p = p * r + 1.1676998740e-1F;
  p = p * r - 1.2420140846e-1F;
  p = p * r + 1.4249322787e-1F;
  p = p * r - 1.6668057665e-1F;
  p = p * r + 2.0000714765e-1F;
  p = p * r - 2.4999993993e-1F;
  p = p * r + 3.3333331174e-1F;
  p = p * r * square + exponent * -2.12194440e-4F - square * 0.5F;
  return (r + p) + exponent * 0.693359375F;
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
