// A derived source is a row of logits that no teacher gave: a target of several
// teacher passes, or of none (common/terms/target.h). CPU (F a SIMD vector) and
// GPU (F a float) share the arithmetic. The row is computed before the row
// statistics are taken; later steps treat it like a teacher's row.
//
// To add a target whose entries follow from the passes' log-probabilities at
// the same entry and from one mean over the vocabulary, add a Kind and a case
// of DerivedEntry.
#pragma once

#include <math.h>

#include <cstdint>

#include "common/kernels/host_device.h"

namespace dapd {

inline constexpr int kMaxMixtureParts = 4;

// log q of all entries of a one-hot row except its own, which has 0. The number
// is finite, so differences are finite too, and far below the log-probability
// of any entry with a probability.
inline constexpr float kOneHotRest = -1e4F;

struct DerivedSource {
  enum class Kind {
    // log q = anchor + strength * clip(centre(sum_i factor_i part_i)) up to a
    // constant of the row, with clip(x) = soft_clip tanh(x / soft_clip).
    kMixture,
    kRouted,  // The row of part route[t] stands for token t; nothing is
              // computed.
    kOneHot,  // All of q is at ids[t].
  };
  Kind kind = Kind::kMixture;
  int source = 0;  // its index; the row is written to its logits unless it is
                   // routed
  int anchor = 0;
  int parts[kMaxMixtureParts] = {};
  float factors[kMaxMixtureParts] = {};
  int num_parts = 0;
  bool recentre = false;
  float soft_clip = 0.0F;  // infinity: none
  float strength = 1.0F;
  const uint8_t* route = nullptr;  // [tokens]
  const int64_t* ids = nullptr;    // [tokens]

  // Returns the source whose row stands for a token's row in a routed source.
  DAPD_HOST_DEVICE int TakenBy(int64_t token) const {
    return parts[route[token]];
  }
};

// Makes the row of a derived source for one token, and its statistics. `rows`
// provides the steps: Route(derived) lets the row of another source stand for
// it, WriteMixture(derived) and WriteOneHot(derived) write it, and
// Measure(source) takes the statistics of the written row.
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

// Returns an entry's contribution to the mean over the vocabulary that
// DerivedEntry takes as `mean` if derived.recentre is set.
// `log_probability(source)` is for the same entry.
template <typename F, typename LogProbability>
DAPD_HOST_DEVICE inline F DeltaOf(const DerivedSource& derived,
                                  const LogProbability& log_probability) {
  F delta = F{};
  for (int i = 0; i < derived.num_parts; ++i) {
    delta += derived.factors[i] * log_probability(derived.parts[i]);
  }
  return delta;
}

// Returns log q of a mixture's entry, up to a constant of the row. `math` has
// Tanh of F.
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
