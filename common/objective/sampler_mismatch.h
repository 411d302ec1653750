// Compares the trainer's log-probabilities of the sampled tokens with the
// log-probabilities with which the sampler drew them. Both are at temperature 1
// and unfiltered, for the same tokens under the same adapter. They differ by
// the ways in which trainer and sampler compute and, with rollout.max_staleness
// 1, by the optimizer step between them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace dapd {

struct SamplerMismatch {
  double sum = 0.0;      // sum of |trainer - sampler|
  double largest = 0.0;  // largest |trainer - sampler|
  int64_t tokens = 0;    // compared

  double mean() const {
    return tokens == 0 ? 0.0 : sum / static_cast<double>(tokens);
  }
  SamplerMismatch& operator+=(const SamplerMismatch& other) {
    sum += other.sum;
    largest = std::max(largest, other.largest);
    tokens += other.tokens;
    return *this;
  }
};

// Compares one answer token by token. Compares nothing if the sampler's
// log-probabilities are not known, which shows in their number.
inline SamplerMismatch CompareLogprobs(std::span<const float> trainer,
                                       std::span<const float> sampler) {
  SamplerMismatch mismatch;
  if (trainer.size() != sampler.size()) return mismatch;
  for (size_t i = 0; i < trainer.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(trainer[i]) - sampler[i]);
    mismatch += {difference, difference, 1};
  }
  return mismatch;
}

}  // namespace dapd
