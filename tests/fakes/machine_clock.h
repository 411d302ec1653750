// Sets the machine's clock while the tested code runs. For programs that have
// machine_clock.cc among their files.
#pragma once

#include "absl/time/time.h"

namespace dapd {

// Only one may exist at a time; its destructor corrects the clock. Thread-safe.
class MachineClock {
 public:
  // Takes up to two seconds if the process has read the clock for some time.
  MachineClock();
  ~MachineClock();
  MachineClock(const MachineClock&) = delete;
  MachineClock& operator=(const MachineClock&) = delete;

  // `by` must be at least an hour.
  void Set(absl::Duration by);
};

}  // namespace dapd
