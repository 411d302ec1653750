#include "common/base/stop_requests.h"

#include <csignal>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(StopRequestsTest, SignalsAreCountedAndEndNothing) {
  CatchStopRequests();
  const int before = StopRequests();  // of a repetition
  std::raise(SIGTERM);
  EXPECT_EQ(StopRequests(), before + 1);
  std::raise(SIGINT);
  std::raise(SIGPIPE);
  EXPECT_EQ(StopRequests(), before + 2);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) {
    std::signal(number, SIG_DFL);
  }
}

}  // namespace
}  // namespace dapd
