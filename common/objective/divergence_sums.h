// Sums of a term's divergence: over the tokens of a call or, divided as its
// reduction says, over the answers of a micro-batch.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "common/terms/target.h"

namespace dapd {

struct DivergenceSums {
  double clipped = 0.0;    // the loss, each token with its own weight
  double unclipped = 0.0;  // the divergence without clip, with the same weights
  int64_t clipped_tokens = 0;  // with at least one entry above the clip
  int64_t tokens = 0;          // scored
  // The term's value is clipped / denominator. The denominator counts tokens
  // for micro_token; for the other reductions it counts answers, and each
  // answer adds its mean over tokens. 0: no token was scored.
  double denominator = 0.0;
  // For a routed target: the counted tokens of the answers by Regime.
  std::array<int64_t, kNumRegimes> regimes = {};

  double value() const { return Over(clipped); }
  double true_value() const { return Over(unclipped); }

  DivergenceSums& operator+=(const DivergenceSums& other) {
    clipped += other.clipped;
    unclipped += other.unclipped;
    clipped_tokens += other.clipped_tokens;
    tokens += other.tokens;
    denominator += other.denominator;
    for (size_t r = 0; r < kNumRegimes; ++r) regimes[r] += other.regimes[r];
    return *this;
  }

 private:
  double Over(double sum) const {
    return denominator > 0.0 ? sum / denominator : 0.0;
  }
};

// The sums of a term by the teacher that the samples' rows name, over each
// teacher's own answers with a counted token. Empty for a term that does not
// read the row's teacher.
using SumsByTeacher = std::map<std::string, DivergenceSums>;

}  // namespace dapd
