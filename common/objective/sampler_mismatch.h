// How far the trainer's log-probabilities of the sampled tokens lie from those
// that the sampler drew them with. Both are at temperature 1 and unfiltered, of
// the same tokens under the same adapter: what differs is how the two compute,
// and, with rollout.max_staleness 1, the optimizer step between them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace dapd {

struct SamplerMismatch {
  double sum = 0.0;      // of |trainer's - sampler's|
  double largest = 0.0;  // of these
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

// Of one answer, token by token; of nothing if the sampler's are not known,
// that is, if there is not one for each of the trainer's.
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
