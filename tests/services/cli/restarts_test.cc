#include "services/cli/restarts.h"

#include <csignal>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/process_end.h"

namespace dapd {
namespace {

constexpr int kFailed = 1;
constexpr int kCrashed = CodeOfSignal(SIGSEGV);
constexpr int kKilled = CodeOfSignal(SIGKILL);

class RestartsTest : public testing::Test {
 protected:
  RestartsTest() { restarts_.Started(now_); }

  // Ends the process after `lived`, starts it again as soon as that is allowed,
  // and returns the pause before the start.
  std::optional<absl::Duration> EndAndStart(
      int code, bool has_worked, absl::Duration lived = absl::Seconds(1)) {
    now_ += lived;
    const auto next = restarts_.Ended(code, has_worked, now_);
    if (!next.has_value()) return std::nullopt;
    const absl::Duration pause = *next - now_;
    now_ = *next;
    restarts_.Started(now_);
    return pause;
  }

  Restarts restarts_{Restarts::Options()};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(RestartsTest, ThePauseDoublesToTenSeconds) {
  std::vector<double> pauses;
  for (int i = 0; i < 8; ++i) {
    pauses.push_back(absl::ToDoubleSeconds(*EndAndStart(kFailed, false)));
  }
  EXPECT_THAT(pauses,
              testing::ElementsAre(0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10));
  EXPECT_EQ(EndAndStart(kFailed, true), absl::Milliseconds(200))
      << "it has worked";
}

TEST_F(RestartsTest, AFaultOfTenSecondsLeavesStartsOver) {
  const absl::Time mended = now_ + absl::Seconds(10);
  int starts = 0;
  for (; now_ < mended; ++starts) {
    ASSERT_TRUE(
        EndAndStart(kFailed, false, absl::Milliseconds(50)).has_value());
  }
  EXPECT_LE(starts, 7);
}

TEST_F(RestartsTest, TheThirdCrashInARowIsTheLast) {
  EXPECT_TRUE(EndAndStart(kCrashed, false).has_value());
  EXPECT_TRUE(EndAndStart(kCrashed, false).has_value());
  EXPECT_EQ(restarts_.crashes(), 2);
  EXPECT_EQ(EndAndStart(kCrashed, false), std::nullopt);
  EXPECT_EQ(restarts_.crashes(), 3);
}

TEST_F(RestartsTest, WorkInBetweenBeginsAnotherRow) {
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(EndAndStart(kCrashed, false).has_value()) << i;
    ASSERT_TRUE(EndAndStart(kCrashed, true).has_value()) << i;
  }
  EXPECT_TRUE(EndAndStart(kCrashed, false).has_value());
  EXPECT_EQ(EndAndStart(kCrashed, false), std::nullopt);
}

// The process reads a large model for a quarter of an hour and then crashes.
TEST_F(RestartsTest, TimeIsNoWork) {
  const absl::Duration long_time = absl::Minutes(15);
  EXPECT_TRUE(EndAndStart(kCrashed, false, long_time).has_value());
  EXPECT_TRUE(EndAndStart(kCrashed, false, long_time).has_value());
  EXPECT_EQ(EndAndStart(kCrashed, false, long_time), std::nullopt);
}

TEST_F(RestartsTest, AKillIsNoCrash) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(EndAndStart(kKilled, false).has_value()) << i;
  }
  EXPECT_EQ(restarts_.crashes(), 0);
  EXPECT_EQ(EndAndStart(kKilled, false), std::nullopt) << "nor is it for ever";
}

TEST_F(RestartsTest, WhatLastsIsStartedAgainHoweverOftenItEnds) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(EndAndStart(kKilled, false, absl::Minutes(10)),
              absl::Milliseconds(200));
  }
}

}  // namespace
}  // namespace dapd
