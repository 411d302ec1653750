// PhaseTimer: adds the wall seconds until its destruction to `*sum`.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace dapd {

class PhaseTimer {
 public:
  explicit PhaseTimer(double* sum) : sum_(sum), start_(absl::Now()) {}
  ~PhaseTimer() { *sum_ += absl::ToDoubleSeconds(absl::Now() - start_); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double* sum_;
  absl::Time start_;
};

}  // namespace dapd
