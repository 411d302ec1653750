#include "common/timeline/clock_map.h"

#include <random>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

// The clock of this peer is ahead of our clock by `ahead` and runs faster by
// `drift`.
struct Peer {
  absl::Duration ahead;
  double drift = 0.0;

  absl::Time ToPeers(absl::Time own) const {
    return own + ahead + drift * (own - kStart);
  }
  // Models a call that takes `there` to arrive and `back` to return.
  ClockReading Ask(absl::Time asked,
                   absl::Duration there,
                   absl::Duration back) const {
    return {asked, ToPeers(asked + there), asked + there + back};
  }
};

absl::Duration Error(const ClockMap& map, const Peer& peer, absl::Time own) {
  return absl::AbsDuration(map.ToOwn(peer.ToPeers(own)) - own);
}

TEST(ClockMapTest, WithoutAReadingNothingIsKnown) {
  const ClockMap map;
  EXPECT_TRUE(map.empty());
  EXPECT_EQ(map.ToOwn(kStart), kStart);
  EXPECT_EQ(map.error(), absl::InfiniteDuration());
}

TEST(ClockMapTest, EqualWaysGiveTheClockExactly) {
  const Peer peer = {.ahead = absl::Hours(-3)};
  ClockMap map;
  map.Add(peer.Ask(kStart, absl::Milliseconds(5), absl::Milliseconds(5)));
  EXPECT_EQ(map.error(), absl::Milliseconds(5));
  for (const double seconds : {-50.0, 0.0, 100.0}) {
    EXPECT_LT(Error(map, peer, At(seconds)), absl::Microseconds(1));
  }
}

TEST(ClockMapTest, HoweverUnequalTheWaysTheErrorIsAsSaid) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> way(0.0, 0.02);
  for (int run = 0; run < 100; ++run) {
    const Peer peer = {.ahead = absl::Seconds(way(random) * 1000),
                       .drift = (way(random) - 0.01) * 0.01};
    ClockMap map;
    for (int i = 0; i <= 20; ++i) {
      map.Add(peer.Ask(
          At(3.0 * i), absl::Seconds(way(random)), absl::Seconds(way(random))));
    }
    for (double seconds = 0.1; seconds < 60.0; seconds += 0.37) {
      EXPECT_LE(Error(map, peer, At(seconds)),
                map.error() + absl::Microseconds(1))
          << seconds;
    }
  }
}

TEST(ClockMapTest, DriftBetweenReadingsIsTaken) {
  const Peer peer = {.ahead = absl::Seconds(2), .drift = 2e-4};
  ClockMap map;
  for (const double seconds : {0.0, 600.0}) {
    map.Add(peer.Ask(
        At(seconds), absl::Microseconds(100), absl::Microseconds(100)));
  }
  // A constant offset would be wrong by 60 ms in the middle.
  EXPECT_LT(Error(map, peer, At(300)), absl::Microseconds(200));
}

TEST(ClockMapTest, OfReadingsAtOnceTheBestCounts) {
  const Peer peer = {.ahead = absl::Seconds(1)};
  ClockMap map;
  map.Add(peer.Ask(At(0), absl::Milliseconds(80), absl::Milliseconds(1)));
  map.Add(peer.Ask(At(0.1), absl::Milliseconds(1), absl::Milliseconds(1)));
  map.Add(peer.Ask(At(0.2), absl::Milliseconds(9), absl::Milliseconds(1)));
  EXPECT_EQ(map.error(), absl::Milliseconds(1));
  EXPECT_LT(Error(map, peer, At(0.1)), absl::Microseconds(1));
}

TEST(ClockMapTest, TheOrderOfAPeersTimesStays) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> way(0.0, 0.9);
  const Peer peer = {.ahead = absl::Milliseconds(-40)};
  ClockMap map;
  for (int i = 0; i < 50; ++i) {
    map.Add(peer.Ask(
        At(1.1 * i), absl::Seconds(way(random)), absl::Seconds(way(random))));
  }
  absl::Time last = absl::InfinitePast();
  for (double seconds = -5.0; seconds < 70.0; seconds += 0.01) {
    const absl::Time own = map.ToOwn(peer.ToPeers(At(seconds)));
    EXPECT_GT(own, last) << seconds;
    last = own;
  }
}

TEST(ClockMapTest, AClockThatIsSetBackBeginsAnew) {
  const absl::Duration way = absl::Milliseconds(1);
  Peer peer = {.ahead = absl::Seconds(100)};
  ClockMap map;
  map.Add(peer.Ask(At(0), way, way));
  map.Add(peer.Ask(At(10), way, way));
  peer.ahead = absl::ZeroDuration();
  map.Add(peer.Ask(At(20), way, way));
  EXPECT_LT(Error(map, peer, At(25)), absl::Microseconds(1));
}

TEST(ClockMapTest, WhatCannotBeIsIgnored) {
  ClockMap map;
  map.Add({.asked = At(1), .told = At(1), .heard = At(0)});
  EXPECT_TRUE(map.empty());
  map.Add({.asked = At(1), .told = At(1), .heard = At(1)});
  map.Add({.asked = At(0), .told = At(50), .heard = At(0)});
  EXPECT_EQ(map.ToOwn(At(7)), At(7));
}

}  // namespace
}  // namespace dapd
