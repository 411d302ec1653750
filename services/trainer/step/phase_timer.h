// PhaseTimer: measures the wall-clock seconds of its lifetime, adds them to
// `*sum` and subtracts them from `*around`, the sum of the phase around it
// (null: none).
#pragma once

#include "absl/time/time.h"

#include "common/base/steady_time.h"

namespace dapd {

class PhaseTimer {
 public:
  explicit PhaseTimer(double* sum, double* around = nullptr)
      : sum_(sum), around_(around), start_(SteadyNow()) {}
  ~PhaseTimer() {
    const double seconds = absl::ToDoubleSeconds(SteadyNow() - start_);
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
