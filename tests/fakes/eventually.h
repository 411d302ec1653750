// Waits until another thread or process makes a condition true.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/steady_time.h"

namespace dapd {

// Returns false if the condition does not hold within a minute, which suffices
// on a busy machine.
template <typename Condition>
[[nodiscard]] bool Eventually(Condition condition) {
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  while (!condition()) {
    if (SteadyNow() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace dapd
