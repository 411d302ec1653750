#include "tests/fakes/machine_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

std::atomic<int64_t> ahead_seconds = 0;

}  // namespace

MachineClock::~MachineClock() { ahead_seconds = 0; }

void MachineClock::Set(absl::Duration by) {
  const absl::Time before = absl::Now();
  ahead_seconds += absl::ToInt64Seconds(by);
  EXPECT_GT(absl::AbsDuration(absl::Now() - before), absl::Minutes(30))
      << "this program's clock can be set";
}

}  // namespace dapd

// In place of the C library's, for the test program and its libraries.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result =
      static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) {
    time->tv_sec += dapd::ahead_seconds;
  }
  return result;
}
