#include "common/base/stop_requests.h"

#include <csignal>
#include <cstdlib>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(StopRequestsTest, SignalsAreCountedAndEndNothing) {
  std::signal(SIGHUP, SIG_DFL);  // nohup ignores SIGHUP
  CatchStopRequests();
  int expected = StopRequests();  // not 0 when the test is repeated
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    absl::SleepFor(kSameRequest);
    std::raise(number);
    std::raise(SIGPIPE);
    EXPECT_EQ(StopRequests(), ++expected) << number;
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    std::signal(number, SIG_DFL);
  }
}

TEST(StopRequestsTest, ARequestThatArrivesMoreThanOnceIsOne) {
  CatchStopRequests();
  absl::SleepFor(kSameRequest);
  const int before = StopRequests();
  for (const int number : {SIGTERM, SIGTERM, SIGHUP, SIGTERM}) {
    std::raise(number);
  }
  EXPECT_EQ(StopRequests(), before + 1);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    std::signal(number, SIG_DFL);
  }
}

TEST(StopRequestsDeathTest, WhatOutlivesItsTerminalDoesNotCountItsEnd) {
  EXPECT_EXIT(
      {
        const int before = StopRequests();
        std::signal(SIGHUP, SIG_IGN);
        CatchStopRequests();
        absl::SleepFor(kSameRequest);
        std::raise(SIGHUP);
        std::_Exit(StopRequests() - before);
      },
      ::testing::ExitedWithCode(0),
      "");
}

}  // namespace
}  // namespace dapd
