#include "common/rpc/transfer/upload_turns.h"

#include <atomic>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr absl::Duration kStall = absl::Milliseconds(300);

bool Never() { return false; }

TEST(UploadTurnsTest, OneAfterTheOther) {
  UploadTurns turns;
  std::optional<UploadTurns::Turn> first =
      *turns.Take(WeightSet::kLive, "key", Never);
  std::atomic<bool> has_turn = false;
  std::jthread second([&] {
    const auto turn = turns.Take(WeightSet::kLive, "key", Never);
    has_turn = turn.ok();
  });
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(has_turn);
  first.reset();
  second.join();
  EXPECT_TRUE(has_turn);
}

TEST(UploadTurnsTest, OtherKeysAndSetsDoNotWait) {
  UploadTurns turns;
  const auto live = turns.Take(WeightSet::kLive, "key", Never);
  EXPECT_TRUE(turns.Take(WeightSet::kLive, "other", Never).ok());
  EXPECT_TRUE(turns.Take(WeightSet::kSnapshot, "key", Never).ok());
}

TEST(UploadTurnsTest, WhoseClientIsGoneWaitsNoLonger) {
  UploadTurns turns;
  const auto live = turns.Take(WeightSet::kLive, "key", Never);
  const auto waiting = turns.Take(WeightSet::kLive, "key", [] { return true; });
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kCancelled);
}

TEST(UploadTurnsTest, OneThatStallsLosesItsTurnAndEndsNobodyElses) {
  UploadTurns turns(kStall);
  std::optional<UploadTurns::Turn> stalled =
      *turns.Take(WeightSet::kLive, "key", Never);
  const absl::Time start = absl::Now();
  const auto next = turns.Take(WeightSet::kLive, "key", Never);
  ASSERT_TRUE(next.ok());
  EXPECT_GE(absl::Now() - start, kStall - absl::Milliseconds(50));
  next->Complete();
  // The stalled client comes back: neither its progress nor its end touches the
  // turn of the next client.
  stalled->Advance();
  stalled.reset();
  int asked = 0;
  const auto third =
      turns.Take(WeightSet::kLive, "key", [&] { return ++asked > 3; });
  EXPECT_EQ(third.status().code(), absl::StatusCode::kCancelled);
}

TEST(UploadTurnsTest, AnUploadThatIsThereIsWaitedForHoweverLong) {
  UploadTurns turns(kStall);
  const auto complete = turns.Take(WeightSet::kLive, "key", Never);
  complete->Complete();
  const absl::Time end = absl::Now() + 2 * kStall;
  const auto waiting =
      turns.Take(WeightSet::kLive, "key", [end] { return absl::Now() > end; });
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace dapd
