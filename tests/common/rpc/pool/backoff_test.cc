#include "common/rpc/pool/backoff.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(BackoffTest, WaitsGrowToTheMaximumWithinTheJitter) {
  BackoffOptions options;
  options.initial = absl::Seconds(1);
  options.max = absl::Seconds(4);
  options.factor = 2.0;
  options.jitter = 0.1;
  Backoff backoff(options, 7);
  for (const double expected : {1.0, 2.0, 4.0, 4.0, 4.0}) {
    const double wait = absl::ToDoubleSeconds(backoff.Next());
    EXPECT_GE(wait, 0.9 * expected);
    EXPECT_LE(wait, 1.1 * expected);
  }
}

TEST(BackoffTest, AfterASuccessTheFirstWaitIsShortAgain) {
  BackoffOptions options;
  options.jitter = 0.0;
  Backoff backoff(options, 7);
  for (int i = 0; i < 5; ++i) backoff.Next();
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), options.initial);
}

TEST(BackoffTest, TwoClientsDoNotWaitTheSameTime) {
  EXPECT_NE(Backoff({}, 1).Next(), Backoff({}, 2).Next());
}

}  // namespace
}  // namespace dapd
