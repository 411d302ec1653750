#include "common/rpc/server/shutdown_signal.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/stop_requests.h"

namespace dapd {
namespace {

// Each case has its own process, as a program has: no thread that could take
// the signal, such as threads of other tests, starts before ShutdownSignal.
TEST(ShutdownSignalDeathTest, TheFirstSignalEndsWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_EXIT(
        {
          ::signal(SIGHUP, SIG_DFL);  // nohup ignores SIGHUP
          ShutdownSignal signal;
          const bool early = signal.requested();
          ::kill(::getpid(), number);
          signal.Wait();
          std::_Exit(!early && signal.requested() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0),
        "shutting down");
  }
}

TEST(ShutdownSignalTest, WaitForGivesUpAfterItsTimeout) {
  ShutdownSignal signal;
  EXPECT_FALSE(signal.WaitFor(absl::Milliseconds(5)));
  signal.Request();
  EXPECT_TRUE(signal.WaitFor(absl::InfiniteDuration()));
}

TEST(ShutdownSignalTest, TheCallbackRunsOnce) {
  std::atomic<int> calls = 0;
  {
    ShutdownSignal signal([&] { ++calls; });
    signal.Request();
    signal.Request();
  }
  EXPECT_EQ(calls, 1);
}

TEST(ShutdownSignalDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ShutdownSignal signal;
        ::kill(::getpid(), SIGTERM);
        signal.Wait();
        absl::SleepFor(kSameRequest);
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      ::testing::ExitedWithCode(130),
      "second signal");
}

// A service manager sends a signal, and then a parent that got it passes it on.
TEST(ShutdownSignalDeathTest, TheFirstThatArrivesAgainIsNotTheSecond) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ShutdownSignal signal;
        ::kill(::getpid(), SIGTERM);
        signal.Wait();
        ::kill(::getpid(), SIGTERM);
        absl::SleepFor(kSameRequest / 2);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "shutting down");
}

}  // namespace
}  // namespace dapd
