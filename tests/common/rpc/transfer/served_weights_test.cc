#include "common/rpc/transfer/served_weights.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace dapd {
namespace {

using Commands = BoundedQueue<std::function<void()>>;

TEST(ServedWeightsTest, OnlyTheBaseIsServedWithoutAnUpload) {
  const ServedWeights served;
  EXPECT_TRUE(served.Of(WeightSet::kBase).loaded);
  EXPECT_FALSE(served.Of(WeightSet::kEma).loaded);
  EXPECT_TRUE(served.Check(WeightSet::kBase, 0, "").ok());
  const absl::Status status = served.Check(WeightSet::kEma, 0, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "no ema adapter has been loaded yet: call LoadAdapter first");
}

TEST(ServedWeightsTest, ASetServesItsOwnVersionAndNoOther) {
  ServedWeights served;
  served.Set(WeightSet::kSnapshot, {true, 4, "old"});
  served.Set(WeightSet::kEma, {true, 6, "mean"});
  EXPECT_TRUE(served.Check(WeightSet::kSnapshot, 4, "old").ok());
  EXPECT_TRUE(served.Check(WeightSet::kEma, 6, "mean").ok());
  EXPECT_FALSE(served.Check(WeightSet::kSnapshot, 6, "mean").ok());
  EXPECT_FALSE(served.Check(WeightSet::kEma, 6, "old").ok());
  EXPECT_FALSE(served.Check(WeightSet::kEma, 5, "mean").ok());
  EXPECT_FALSE(served.Check(WeightSet::kLive, 6, "mean").ok());
  EXPECT_EQ(served.Loaded().size(), 2U);
}

TEST(IsServedAlreadyTest, TheSameVersionAndDigestAre) {
  const ServedPolicy served = {true, 4, "digest", "key"};
  AdapterUpload upload;
  upload.version = 4;
  upload.adapter.digest = "digest";
  EXPECT_TRUE(*IsServedAlready(served, upload));
  EXPECT_FALSE(*IsServedAlready({}, upload));
  upload.version = 5;
  EXPECT_FALSE(*IsServedAlready(served, upload));
  upload.version = 4;
  upload.adapter.digest = "other";
  EXPECT_FALSE(*IsServedAlready(served, upload));
}

TEST(IsServedAlreadyTest, WhatSaysThatItIsHasToBeTheLastUploadWithItsKey) {
  const AdapterUpload upload = {.key = "key", .is_served = true};
  EXPECT_TRUE(*IsServedAlready({true, 4, "digest", "key"}, upload));
  EXPECT_EQ(
      IsServedAlready({true, 5, "next", "next key"}, upload).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(ServedWeightsTest, WhatIsKeptHasTheKeyThatCameLast) {
  ServedWeights weights;
  weights.Set(WeightSet::kLive, {true, 4, "digest", "first"});
  AdapterUpload upload;
  upload.set = WeightSet::kLive;
  EXPECT_EQ(weights.Keep(upload).key, "first");
  upload.key = "second";
  EXPECT_EQ(weights.Keep(upload).digest, "digest");
  EXPECT_EQ(weights.Of(WeightSet::kLive).key, "second");
  upload.set = WeightSet::kBase;
  EXPECT_TRUE(weights.Keep(upload).loaded);
  EXPECT_EQ(weights.Loaded().size(), 1);
}

TEST(LoadOnComputeThreadTest, TheUploadIsAppliedThere) {
  Commands commands(1);
  std::atomic<bool> applied_there = false;
  std::jthread compute([&] { (*commands.Pop())(); });
  const std::thread::id compute_id = compute.get_id();
  const auto loaded = LoadOnComputeThread(
      {.set = WeightSet::kEma, .version = 3},
      commands,
      [&](const AdapterUpload& upload) -> absl::StatusOr<LoadResult> {
        applied_there = std::this_thread::get_id() == compute_id;
        return LoadResult{upload.set, {true, upload.version, "d"}, {}};
      },
      [] { return false; });
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(applied_there);
  EXPECT_EQ(loaded->set, WeightSet::kEma);
  EXPECT_EQ(loaded->served.version, 3);
}

TEST(LoadOnComputeThreadTest, AClientThatWentAwayIsNotWaitedFor) {
  Commands commands(1);
  const auto loaded = LoadOnComputeThread(
      {},
      commands,
      [](const AdapterUpload&) -> absl::StatusOr<LoadResult> {
        return LoadResult{};
      },
      [] { return true; });
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kCancelled);
  (*commands.Pop())();  // nobody waits for it any more
}

TEST(LoadOnComputeThreadTest, AWorkerThatStopsTakesNoUpload) {
  Commands commands(1);
  commands.Close();
  const auto loaded = LoadOnComputeThread(
      {},
      commands,
      [](const AdapterUpload&) -> absl::StatusOr<LoadResult> {
        return LoadResult{};
      },
      [] { return false; });
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace dapd
