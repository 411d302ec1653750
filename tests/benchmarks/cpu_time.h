// The processor time that a contender used.
#pragma once

#include <sys/resource.h>

namespace dapd {

// Returns the time of this process with all its threads, in user and kernel
// code, since it began.
inline double CpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Measures the seconds between calls.
class CpuClock {
 public:
  double SinceLast() {
    const double now = CpuSeconds();
    const double used = now - last_;
    last_ = now;
    return used;
  }

 private:
  double last_ = CpuSeconds();
};

}  // namespace dapd
