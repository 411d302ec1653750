// PhaseTimer: adds the wall seconds until its destruction to `*sum`, and takes
// them from `*around`, the sum of a phase that goes on meanwhile (null: none).
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace dapd {

class PhaseTimer {
 public:
  explicit PhaseTimer(double* sum, double* around = nullptr)
      : sum_(sum), around_(around), start_(absl::Now()) {}
  ~PhaseTimer() {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start_);
    *sum_ += seconds;
    if (around_ != nullptr) *around_ -= seconds;
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double* sum_;
  double* around_;
  absl::Time start_;
};

}  // namespace dapd
