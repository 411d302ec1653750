// The machine's clock, which a test sets while what it tests runs. For programs
// that have machine_clock.cc among their files.
#pragma once

#include "absl/time/time.h"

namespace dapd {

// One at a time; its end sets the clock right. Thread-safe.
class MachineClock {
 public:
  // Up to two seconds where the process has read the clock for some time.
  MachineClock();
  ~MachineClock();
  MachineClock(const MachineClock&) = delete;
  MachineClock& operator=(const MachineClock&) = delete;

  // By an hour at least.
  void Set(absl::Duration by);
};

}  // namespace dapd
