// A row of logits that is made of other rows: a target of several teacher
// passes (common/terms/target.h). CPU (F a SIMD vector) and GPU (F a float)
// share the arithmetic. It is computed before the row statistics are taken;
// nothing after that knows that the row is not a teacher's.
//
// A target whose entries follow from the passes' log-probabilities at the same
// entry, and from one mean over the vocabulary, is one more Kind and a case of
// DerivedEntry.
#pragma once

#include <math.h>

#include <cstdint>

#include "common/kernels/host_device.h"

namespace dapd {

inline constexpr int kMaxMixtureParts = 4;

struct DerivedSource {
  enum class Kind {
    // log q = anchor + strength * clip(centre(sum_i factor_i part_i)) up to a
    // constant of the row, clip(x) = soft_clip tanh(x / soft_clip).
    kMixture,
    kRouted,  // the row of part route[t] stands for it: nothing is computed
  };
  Kind kind = Kind::kMixture;
  int source = 0;  // which; a mixture is written to its logits
  int anchor = 0;
  int parts[kMaxMixtureParts] = {};
  float factors[kMaxMixtureParts] = {};
  int num_parts = 0;
  bool recentre = false;
  float soft_clip = 0.0F;  // infinity: none
  float strength = 1.0F;
  const uint8_t* route = nullptr;  // [tokens]
};

// What is averaged over the vocabulary for `mean` of DerivedEntry, if
// derived.recentre says so. `log_probability(source)`: of the same entry.
template <typename F, typename LogProbability>
DAPD_HOST_DEVICE inline F DeltaOf(const DerivedSource& derived,
                                  const LogProbability& log_probability) {
  F delta = F{};
  for (int i = 0; i < derived.num_parts; ++i) {
    delta += derived.factors[i] * log_probability(derived.parts[i]);
  }
  return delta;
}

// log q of an entry, up to a constant of the row. `math` has Tanh of F.
template <typename F, typename LogProbability, typename Math>
DAPD_HOST_DEVICE inline F DerivedEntry(const DerivedSource& derived,
                                       const LogProbability& log_probability,
                                       float mean,
                                       const Math& math) {
  F delta = DeltaOf<F>(derived, log_probability) - mean;
  const float clip = derived.soft_clip;
  if (clip < INFINITY) delta = clip * math.Tanh(delta / clip);
  return log_probability(derived.anchor) + derived.strength * delta;
}

}  // namespace dapd
