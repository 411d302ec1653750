#include "common/rpc/pool/backoff.h"

#include <algorithm>

namespace dapd {

Backoff::Backoff(const BackoffOptions& options, uint64_t seed)
    : options_(options), current_(options.initial), random_(seed) {}

absl::Duration Backoff::Next() {
  std::uniform_real_distribution<double> spread(1.0 - options_.jitter,
                                                1.0 + options_.jitter);
  const absl::Duration wait = current_ * spread(random_);
  current_ = std::min(current_ * options_.factor, options_.max);
  return wait;
}

void Backoff::Reset() { current_ = options_.initial; }

}  // namespace dapd
