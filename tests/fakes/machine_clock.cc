#include "tests/fakes/machine_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/steady_time.h"

namespace dapd {
namespace {

std::atomic<int64_t> ahead_seconds = 0;

int ReadClock(clockid_t clock, timespec* time) {
  const auto result =
      static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += ahead_seconds;
  return result;
}

// Returns the difference between absl::Now() and the clock. absl::Now() counts
// cycles for about two seconds before it reads the clock again. If it then
// finds that the clock was set, it reads the clock every time for the next half
// second.
absl::Duration Lag() {
  timespec time = {};
  ReadClock(CLOCK_REALTIME, &time);
  return absl::AbsDuration(absl::Now() - absl::TimeFromTimespec(time));
}

void SetAhead(int64_t seconds) {
  ahead_seconds = seconds;
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  while (Lag() > absl::Minutes(30) && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_LT(Lag(), absl::Minutes(30)) << "this program's clock can be set";
}

}  // namespace

// absl::Now() reads a clock every time that has just been set, so a test's
// changes take effect at once, however long the process has run.
MachineClock::MachineClock() {
  SetAhead(absl::ToInt64Seconds(absl::Hours(1)));
  SetAhead(0);
}

MachineClock::~MachineClock() { SetAhead(0); }

void MachineClock::Set(absl::Duration by) {
  SetAhead(ahead_seconds + absl::ToInt64Seconds(by));
}

}  // namespace dapd

// Replaces the C library's function, for the test program and its libraries.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  return dapd::ReadClock(clock, time);
}
