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
  for (const int code : {129, 137, 143, 152, 159}) {
    EXPECT_FALSE(IsCrash(code)) << code;
    EXPECT_TRUE(IsKill(code)) << code;
  }
  EXPECT_EQ(HowItEnded(137), "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(HowItEnded(143), "was killed by signal 15 (SIGTERM)");
}

TEST(ProcessEndTest, EverySignalThatEndsAProcessIsNamed) {
  EXPECT_EQ(HowItEnded(CodeOfSignal(SIGXCPU)),
            "was killed by signal 24 (SIGXCPU)");
  EXPECT_EQ(HowItEnded(CodeOfSignal(SIGSYS)),
            "was killed by signal 31 (SIGSYS)");
  EXPECT_EQ(HowItEnded(CodeOfSignal(SIGRTMIN)), "was killed by signal 34");
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
