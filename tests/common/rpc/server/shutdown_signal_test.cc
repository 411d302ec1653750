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

// In a process of its own, as a program calls it: before any thread starts that
// could take the signal, such as those of other tests.
TEST(ShutdownSignalDeathTest, TheFirstSignalEndsWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_EXIT(
        {
          ::signal(SIGHUP, SIG_DFL);  // also under nohup
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

// As from a service manager and then from a parent that was told as well.
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
