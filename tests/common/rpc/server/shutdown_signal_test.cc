#include "common/rpc/server/shutdown_signal.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ShutdownSignalTest, TheFirstSignalEndsWait) {
  for (const int number : {SIGTERM, SIGINT}) {
    ShutdownSignal signal;
    EXPECT_FALSE(signal.requested());
    ::kill(::getpid(), number);
    signal.Wait();
    EXPECT_TRUE(signal.requested());
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
        ::kill(::getpid(), SIGTERM);
        ::pause();
      },
      ::testing::ExitedWithCode(130),
      "second signal");
}

}  // namespace
}  // namespace dapd
