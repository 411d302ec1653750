// SteadyNow: the time for deadlines and for how long something took, within a
// process. Nobody sets it: absl::Now() jumps where the machine's clock is put
// right, by seconds as well as by hours, and with it every deadline.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace dapd {

// Only its differences mean anything: not to be shown, stored or sent.
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() +
         absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace dapd
