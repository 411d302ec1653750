// TaskDurations: how long recent answers took, and at which age a task is a
// straggler that a second worker should compute as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace dapd {

struct HedgeOptions {
  // A straggler takes longer than `minimum` and than factor * (median of the
  // last answers). The median, because a worker that is always slow contributes
  // to the answers.
  double factor = 3.0;
  absl::Duration minimum = absl::Seconds(1);
  // With fewer answers nothing is a straggler.
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

  // Returns InfiniteDuration before `min_answers` answers.
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
