// Backoff: the pause before the next try. It grows by a factor from `initial`
// to `max`, and each pause is drawn within +-jitter, so that many clients do
// not return at the same instant.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace dapd {

struct BackoffOptions {
  absl::Duration initial = absl::Milliseconds(200);
  absl::Duration max = absl::Seconds(2);
  double factor = 1.6;
  double jitter = 0.2;
};

// Not thread-safe.
class Backoff {
 public:
  Backoff(const BackoffOptions& options, uint64_t seed);

  // Returns the pause before the next try.
  absl::Duration Next();
  // Must be called after a success: the next pause is `initial` again.
  void Reset();

 private:
  const BackoffOptions options_;
  absl::Duration current_;
  std::mt19937_64 random_;
};

}  // namespace dapd
