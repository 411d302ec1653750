// The arithmetic with which the CUDA sampler chooses a token: the same function
// of logits, parameters and key as SampleToken (common/generation/sampling.h).
//
// Tokens are ranked by a 64-bit key, larger first: by the logit, then by the
// lower id. Keys are unique, so every cut of the ranking is unique. There are
// two ways to a token:
//   * With top_k up to kMaxSortedTopK the best tokens are found and sorted, and
//     PickSorted walks through them in float64, like SampleToken;
//   * otherwise the ranking is never made. Its cuts (the top_k-th token, the
//     token where the mass reaches top_p, the token where it passes the uniform
//     number) are weighted quantiles, which a radix descent over the keys finds
//     digit by digit. Mass is counted in integers, in units of 2^-40 of the
//     largest, so that threads may add in any order. SampleToken's float64 sums
//     may differ from these by a rounding, and so may a token at the very edge.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/kernels/bfloat16.h"
#include "common/kernels/philox.h"

namespace dapd {

inline constexpr int kMaxSortedTopK = 64;

DAPD_HOST_DEVICE inline uint64_t RankKey(float logit, uint32_t id) {
  // Both zeros rank equally. Negative numbers have the reverse order of their
  // bits.
  const uint32_t bits = logit == 0.0F ? 0 : BitsOfFloat(logit);
  const uint32_t ordered =
      (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (static_cast<uint64_t>(ordered) << 32) | (0xFFFFFFFFU - id);
}

DAPD_HOST_DEVICE inline float LogitOfKey(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return FloatFromBits((ordered & 0x80000000U) != 0 ? ordered ^ 0x80000000U
                                                    : ~ordered);
}

DAPD_HOST_DEVICE inline int32_t IdOfKey(uint64_t key) {
  return static_cast<int32_t>(0xFFFFFFFFU - static_cast<uint32_t>(key));
}

// Returns exp((logit - best) / temperature), the weight that PickSorted takes.
DAPD_HOST_DEVICE inline double SortedWeight(float logit,
                                            float best,
                                            double temperature) {
  return exp((static_cast<double>(logit) - static_cast<double>(best)) /
             temperature);
}

// Returns the index of the token among `count` sorted tokens: it cuts them
// where the mass reaches top_p, then takes the first token whose cumulated
// weight passes `uniform` of the rest.
DAPD_HOST_DEVICE inline int PickSorted(const double* weights,
                                       int count,
                                       double top_p,
                                       double uniform) {
  double total = 0.0;
  for (int i = 0; i < count; ++i) total += weights[i];
  int kept = count;
  if (top_p < 1.0) {
    double mass = 0.0;
    int i = 0;
    while (i < kept && mass < top_p * total) mass += weights[i++];
    kept = i < 1 ? 1 : i;
    total = mass;
  }
  double left = uniform * total;
  for (int i = 0; i + 1 < kept; ++i) {
    left -= weights[i];
    if (left < 0.0) return i;
  }
  return kept - 1;
}

// Returns the temperature that FixedMass divides by. A temperature that is 0 in
// float32 would make the mass of the most probable token 0 / 0.
DAPD_HOST_DEVICE inline float MassTemperature(double temperature) {
  return fmaxf(static_cast<float>(temperature), 0x1.0p-126F);
}

// Returns the mass of a token in units of 2^-40 of the most probable token's
// mass.
DAPD_HOST_DEVICE inline uint64_t FixedMass(float logit,
                                           float best,
                                           float temperature) {
  return static_cast<uint64_t>(expf((logit - best) / temperature) * 0x1.0p40F);
}

// Returns the least whole mass that reaches `fraction` of `total`, at least 1.
// It serves top_p.
DAPD_HOST_DEVICE inline uint64_t MassToReach(double fraction, uint64_t total) {
  const auto mass =
      static_cast<uint64_t>(ceil(fraction * static_cast<double>(total)));
  return mass < 1 ? 1 : mass > total ? total : mass;
}

// Returns the least whole mass that passes `fraction` of `total`. It serves the
// draw.
DAPD_HOST_DEVICE inline uint64_t MassToPass(double fraction, uint64_t total) {
  const auto mass =
      static_cast<uint64_t>(fraction * static_cast<double>(total)) + 1;
  return mass > total ? total : mass;
}

inline constexpr int kDigitBits = 8;
inline constexpr int kNumDigits = 1 << kDigitBits;

// The weight and the number of the keys that share the current prefix and have
// a given next digit. Keys without a weight may be left out.
struct DigitBin {
  uint64_t weight;
  uint32_t count;
};

// A weighted quantile: the smallest set of highest-ranked keys whose weights
// sum to at least `need`. When the descent is done, the set's lowest key is the
// only key in the bins that has `prefix`.
struct RadixDescent {
  uint64_t need = 0;    // at least 1, at most the sum of all weights
  uint64_t before = 0;  // weight of the keys above the prefix
  uint64_t weight = 0;  // weight of the set; final when done
  uint64_t prefix = 0;
  int shift = 64;
  bool done = false;

  DAPD_HOST_DEVICE bool Matches(uint64_t key) const {
    return shift == 64 || key >> shift == prefix;
  }
  DAPD_HOST_DEVICE int Digit(uint64_t key) const {
    return static_cast<int>((key >> (shift - kDigitBits)) & (kNumDigits - 1));
  }
  // Returns the least key that may belong to the set. When the descent is done,
  // the set is all keys at or above it.
  DAPD_HOST_DEVICE uint64_t Floor() const { return prefix << shift; }
  // Takes the bins of the keys that match and goes one digit on.
  DAPD_HOST_DEVICE void Descend(const DigitBin* bins) {
    int digit = kNumDigits - 1;
    while (digit > 0 && before + bins[digit].weight < need) {
      before += bins[digit--].weight;
    }
    prefix =
        (shift == 64 ? 0 : prefix << kDigitBits) | static_cast<uint64_t>(digit);
    shift -= kDigitBits;
    weight = before + bins[digit].weight;
    done = shift == 0 || bins[digit].count == 1;
  }
};

}  // namespace dapd
