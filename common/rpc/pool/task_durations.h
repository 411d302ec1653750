// TaskDurations: how long answers took lately, and from when on a task counts
// as a straggler that is worth doing a second time elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace dapd {

struct HedgeOptions {
  // A straggler takes longer than factor * (median of the last answers) and
  // than `minimum`. The median, because the answers of a worker that is always
  // slow are among them.
  double factor = 3.0;
  absl::Duration minimum = absl::Seconds(1);
  // Fewer answers than this say nothing.
  size_t min_answers = 4;
};

// Not thread-safe.
class TaskDurations {
 public:
  explicit TaskDurations(HedgeOptions options) : options_(options) {}

  void Add(absl::Duration duration) {
    if (recent_.size() < kWindow) {
      recent_.push_back(duration);
    } else {
      recent_[next_] = duration;
    }
    next_ = (next_ + 1) % kWindow;
  }

  // InfiniteDuration while too little is known.
  absl::Duration StragglerAge() const {
    if (recent_.size() < options_.min_answers) return absl::InfiniteDuration();
    std::vector<absl::Duration> sorted = recent_;
    const auto median = sorted.begin() + static_cast<long>(sorted.size() / 2);
    std::nth_element(sorted.begin(), median, sorted.end());
    return std::max(options_.minimum, options_.factor * *median);
  }

 private:
  static constexpr size_t kWindow = 64;
  const HedgeOptions options_;
  std::vector<absl::Duration> recent_;
  size_t next_ = 0;
};

}  // namespace dapd
