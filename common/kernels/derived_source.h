// A row of logits that no teacher gave: a target of several teacher passes, or
// of none (common/terms/target.h). CPU (F a SIMD vector) and GPU (F a float)
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

// log q of all entries but one of a one-hot row, whose own is 0: finite, so
// that differences are, and far below what has a probability.
inline constexpr float kOneHotRest = -1e4F;

struct DerivedSource {
  enum class Kind {
    // log q = anchor + strength * clip(centre(sum_i factor_i part_i)) up to a
    // constant of the row, clip(x) = soft_clip tanh(x / soft_clip).
    kMixture,
    kRouted,  // the row of part route[t] stands for it: nothing is computed
    kOneHot,  // all of q at ids[t]
  };
  Kind kind = Kind::kMixture;
  int source = 0;  // which; all but a routed one are written to its logits
  int anchor = 0;
  int parts[kMaxMixtureParts] = {};
  float factors[kMaxMixtureParts] = {};
  int num_parts = 0;
  bool recentre = false;
  float soft_clip = 0.0F;  // infinity: none
  float strength = 1.0F;
  const uint8_t* route = nullptr;  // [tokens]
  const int64_t* ids = nullptr;    // [tokens]

  // The source whose row stands for a token's, of a routed one.
  DAPD_HOST_DEVICE int TakenBy(int64_t token) const {
    return parts[route[token]];
  }
};

// Makes the row of a derived source and its statistics, of one token. `rows`
// does it: Route(derived) lets the row of another source stand for it,
// WriteMixture(derived) and WriteOneHot(derived) write it, and Measure(source)
// takes the statistics of what was written.
template <typename Rows>
DAPD_HOST_DEVICE inline void DeriveRow(const DerivedSource& derived,
                                       Rows& rows) {
  switch (derived.kind) {
    case DerivedSource::Kind::kRouted:
      rows.Route(derived);
      return;
    case DerivedSource::Kind::kMixture:
      rows.WriteMixture(derived);
      break;
    case DerivedSource::Kind::kOneHot:
      rows.WriteOneHot(derived);
      break;
  }
  rows.Measure(derived.source);
}

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

// log q of a mixture's entry, up to a constant of the row. `math` has Tanh of
// F.
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
