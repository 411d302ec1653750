// SteadyNow: the time for deadlines and durations within a process. absl::Now()
// jumps, by seconds or hours, when the clock of the machine is corrected, and
// every deadline would jump with it; this clock cannot be set.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace dapd {

// Only differences of these times have a meaning: do not show, store or send
// them.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace dapd
