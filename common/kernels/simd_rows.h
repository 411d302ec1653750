// Loops over a row of floats in the vectors of a level, and the functions of a
// row that a softmax needs. Like simd.h, only sources that are compiled once
// per CPU level may include it.
#pragma once

#include <math.h>

#include "common/kernels/divergence_entry.h"
#include "common/kernels/simd.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {

// Number of entries that are summed in float lanes before the sum goes to a
// double, and whose gradient is collected on the stack.
inline constexpr int64_t kBlock = 512;

inline Floats Broadcast(float value) { return value - Floats{}; }

inline Floats ExpOf(Floats x) { return Exp(x); }

inline Floats LogOf(Floats x) { return Log(x); }

// Returns tanh(x): 1 where e^(2x) has overflowed, and the series near 0, where
// the difference would lose all digits of x.
inline Floats TanhOf(Floats x) {
  constexpr float kSeriesEnd = 0.125F;
  const Floats xx = x * x;
  const Floats series =
      x + x * xx * (xx * (2.0F / 15.0F - xx * (17.0F / 315.0F)) - 1.0F / 3.0F);
  const Floats far = 1.0F - 2.0F / (Exp(x + x) + 1.0F);
  return xx < Broadcast(kSeriesEnd * kSeriesEnd) ? series : far;
}

// Adds in double, so that the error of a row's sum is little more than the
// error of its terms.
inline double SumOfLanes(Floats value) {
  double sum = 0.0;
  for (int i = 0; i < kLanes; ++i) sum += value[i];
  return sum;
}

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }

// A loop over a row gets this for each full vector, and FirstLanes for the few
// lanes at the row's end.
struct AllLanes {
  static Floats Read(const float* from) { return Load<Floats>(from); }
  static void Write(float* to, Floats value) { Store(value, to); }
  // Returns the existing lanes, with 0 in the others.
  static Floats Keep(Floats value) { return value; }
};

struct FirstLanes {
  int64_t count;

  Floats Read(const float* from) const { return LoadPart(from, count, 0.0F); }
  void Write(float* to, Floats value) const { StorePart(value, count, to); }
  Floats Keep(Floats value) const {
    for (int64_t i = count; i < kLanes; ++i) value[i] = 0.0F;
    return value;
  }
};

// Calls body(lanes, i) for i = begin, begin + kLanes, ... below end.
template <typename Body>
void ForEachVector(int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(AllLanes{}, i);
  if (i < end) body(FirstLanes{end - i}, i);
}

template <typename Body>
void ForEachBlock(int64_t size, const Body& body) {
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    body(begin, begin + kBlock < size ? begin + kBlock : size);
  }
}

inline RowStatistics Statistics(const float* z, int64_t size, float scale) {
  Floats top = Broadcast(z[0]);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) top = Max(top, Load<Floats>(z + i));
  float max = Largest(top);
  for (; i < size; ++i) {
    if (z[i] > max) max = z[i];
  }
  const Floats all_max = Broadcast(max);
  const Floats all_scale = Broadcast(scale);
  double sum = 0.0;
  ForEachBlock(size, [&](int64_t begin, int64_t end) {
    Floats part = Floats{};
    ForEachVector(begin, end, [&](auto lanes, int64_t v) {
      part +=
          lanes.Keep(ScaledExp(lanes.Read(z + v), all_max, all_scale, ExpOf));
    });
    sum += SumOfLanes(part);
  });
  return {max,
          static_cast<float>(1.0 / sum),
          static_cast<double>(max) * scale + log(sum)};
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
