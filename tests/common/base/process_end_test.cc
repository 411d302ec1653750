#include "common/base/process_end.h"

#include <csignal>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(ProcessEndTest, AFaultOfItsOwnIsACrash) {
  for (const int fault : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) {
    EXPECT_TRUE(IsCrash(CodeOfSignal(fault))) << fault;
    EXPECT_FALSE(IsKill(CodeOfSignal(fault))) << fault;
  }
  EXPECT_EQ(HowItEnded(132), "crashed by SIGILL");
  EXPECT_EQ(HowItEnded(139), "crashed by SIGSEGV");
}

TEST(ProcessEndTest, WhoIsKilledDidNotCrash) {
  for (const int code : {137, 143}) {
    EXPECT_FALSE(IsCrash(code)) << code;
    EXPECT_TRUE(IsKill(code)) << code;
  }
  EXPECT_EQ(HowItEnded(137), "was killed by SIGKILL");
  EXPECT_EQ(HowItEnded(143), "was killed by SIGTERM");
}

TEST(ProcessEndTest, AnExitCodeIsNeither) {
  for (const int code : {0, 1, 3, 75, 130}) {
    EXPECT_FALSE(IsCrash(code)) << code;
    EXPECT_FALSE(IsKill(code)) << code;
  }
  EXPECT_EQ(HowItEnded(75), "ended with code 75");
}

}  // namespace
}  // namespace dapd
