#include "services/rollout/rollout_worker.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/rollout/rollout_worker_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RolloutWorkerTest, ARequestGetsItsTokensAndTheirPolicy) {
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  const Answer answer = Wait(5);
  EXPECT_THAT(answer.ids, ElementsAre(10, 11, 12));
  EXPECT_EQ(answer.end.reason(), v1::GenerationFinished::REASON_LENGTH);
  EXPECT_EQ(answer.end.policy_version(), 1);
  EXPECT_EQ(answer.end.adapter_digest(), "one");
}

TEST_F(RolloutWorkerTest, AnAnsweredRequestIsReportedWithItsLengthsAndTimes) {
  std::vector<RolloutReport> reports;  // read once the worker has stopped
  Start({.observer = {.on_request = [&](const RolloutReport& report) {
           reports.push_back(report);
         }}});
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  Wait(5);
  Submit(6, 3, 2, "two");
  Wait(6);
  worker_.reset();
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(reports[0].prompt_tokens, 2);
  EXPECT_EQ(reports[0].answer_tokens, 3);
  EXPECT_GT(reports[0].seconds_to_first_token, 0.0);
  EXPECT_LE(reports[0].seconds_to_first_token, reports[0].seconds);
  EXPECT_EQ(reports[1].finish_reason, FinishReason::kNone);
  EXPECT_EQ(reports[1].answer_tokens, 0);
}

TEST_F(RolloutWorkerTest, AnAnswerSaysWhenAndInWhichSlotItWasSampled) {
  control_.slots = 2;
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  const int64_t before = absl::GetCurrentTimeNanos();
  constexpr uint64_t kRequests = 9;
  for (uint64_t id = 0; id < kRequests; ++id) {
    Submit(id, 1 + static_cast<int64_t>(id % 4));
  }
  // Two requests run at once; otherwise each could end in the first slot before
  // the next request arrives.
  WaitForRunning(2);
  control_.hold = false;
  std::map<uint32_t, std::vector<v1::SampleTimes>> by_slot;
  for (uint64_t id = 0; id < kRequests; ++id) {
    const v1::SampleTimes times = Wait(id).end.times();
    EXPECT_LE(before, times.arrived());
    EXPECT_LE(times.arrived(), times.started());
    EXPECT_LE(times.started(), times.first_token());
    EXPECT_LE(times.first_token(), times.ended());
    by_slot[times.slot()].push_back(times);
  }
  EXPECT_EQ(by_slot.size(), 2U);
  EXPECT_TRUE(by_slot.contains(0) && by_slot.contains(1));
  for (auto& [slot, all] : by_slot) {
    std::ranges::sort(all, {}, &v1::SampleTimes::started);
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_LE(all[i - 1].ended(), all[i].started()) << "slot " << slot;
    }
  }
}

TEST_F(RolloutWorkerTest, TheTimeOfTheFirstTokenIsNotThatOfALaterOne) {
  control_.eos_after = 1 << 29;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 1 << 29);
  ASSERT_TRUE(outbox_->PopFor(absl::Seconds(20)).has_value());
  // The clocks of two threads differ by microseconds.
  absl::SleepFor(absl::Milliseconds(20));
  const absl::Time between = absl::Now() - absl::Milliseconds(10);
  control_.eos_after = 1;
  const v1::SampleTimes times = Wait(5).end.times();
  EXPECT_LT(absl::FromUnixNanos(times.first_token()), between);
  EXPECT_LT(between, absl::FromUnixNanos(times.ended()));
}

TEST_F(RolloutWorkerTest, TheUseOfKvMemoryIsReported) {
  std::vector<KvUse> uses;  // read once the worker has stopped
  control_.restarts = 3;
  Start({.observer = {
             .on_kv_use = [&](const KvUse& use) { uses.push_back(use); }}});
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  Wait(5);
  worker_.reset();
  ASSERT_GE(uses.size(), 3U);
  EXPECT_EQ(uses.front().bytes, 0);
  EXPECT_EQ(uses.front().limit_bytes, 4);
  EXPECT_TRUE(std::ranges::any_of(
      uses, [](const KvUse& use) { return use.bytes == 1; }));
  EXPECT_EQ(uses.back().bytes, 0);
  EXPECT_EQ(uses.back().restarts, 3);
}

TEST_F(RolloutWorkerTest, MoreRequestsThanSlotsAreAllAnswered) {
  control_.slots = 2;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  for (uint64_t id = 0; id < 20; ++id) Submit(id, 3 + id % 4);
  for (uint64_t id = 0; id < 20; ++id) {
    EXPECT_EQ(Wait(id).ids.size(), 3 + id % 4);
  }
}

TEST_F(RolloutWorkerTest, WhatRunsAndWhatWaitsIsReported) {
  control_.slots = 2;
  control_.hold = true;
  std::atomic<int64_t> running = 0;
  std::atomic<int64_t> waiting = 0;
  Start({.observer = {.on_load = [&](int64_t runs, int64_t waits) {
           running = runs;
           waiting = waits;
         }}});
  ASSERT_TRUE(Load(1, "one").ok());
  for (uint64_t id = 0; id < 3; ++id) Submit(id, 3);
  EXPECT_TRUE(Eventually([&] { return running == 2 && waiting == 1; }));
  worker_.reset();
}

TEST_F(RolloutWorkerTest, BeforeTheFirstUploadRequestsAreRefused) {
  Start();
  EXPECT_FALSE(worker_->served().Of(WeightSet::kLive).loaded);
  Submit(5, 3);
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RolloutWorkerTest, ARequestForAnotherPolicyIsRefusedWithBothNames) {
  Start();
  ASSERT_TRUE(Load(2, "two").ok());
  Submit(5, 3, 1, "one");
  const absl::Status other_version = Wait(5).error;
  EXPECT_EQ(other_version.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other_version.message()),
              HasSubstr("version 1 (one)"));
  EXPECT_THAT(std::string(other_version.message()),
              HasSubstr("version 2 (two)"));
  Submit(6, 3, 2, "one");
  EXPECT_EQ(Wait(6).error.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RolloutWorkerTest, AnUploadCancelsWhatRunsAndWaits) {
  control_.slots = 1;
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  Submit(6, 3);
  WaitForRunning(1);
  const auto loaded = Load(2, "two");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->served.version, 2);
  EXPECT_EQ(loaded->applied.modules_applied, 7);
  EXPECT_THAT(loaded->applied.probe_logprobs, ElementsAre(-1.5F, -1.5F));
  for (const uint64_t id : {5, 6}) {
    EXPECT_EQ(Wait(id).error.code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(control_.running, 0);
}

TEST_F(RolloutWorkerTest, TheSameUploadAgainOnlyProbes) {
  ASSERT_NO_FATAL_FAILURE(StartHolding());
  const auto again = Load(1, "one");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->applied.modules_applied, 7);
  EXPECT_EQ(control_.loads, 1);
  control_.hold = false;
  EXPECT_TRUE(Wait(5).error.ok());
}

TEST_F(RolloutWorkerTest, WhatIsServedIsReportedWhenItChanges) {
  std::vector<int64_t> versions;  // read once the worker has stopped
  Start({.observer = {.on_policy = [&](const ServedPolicy& policy) {
           versions.push_back(policy.version);
         }}});
  ASSERT_TRUE(Load(1, "one").ok());
  ASSERT_TRUE(Load(1, "one").ok());
  ASSERT_TRUE(Load(2, "two").ok());
  worker_.reset();
  EXPECT_THAT(versions, ElementsAre(1, 2));
}

TEST_F(RolloutWorkerTest, TheSameUploadIsKnownByTheKeyThatItCameWithLast) {
  Start();
  ASSERT_TRUE(Load(1, "one", "first").ok());
  EXPECT_EQ(Load(1, "one", "second")->served.key, "second");
  EXPECT_EQ(worker_->served().Of(WeightSet::kLive).key, "second");
  EXPECT_EQ(control_.loads, 1);
}

TEST_F(RolloutWorkerTest, ABadUploadLeavesTheOldPolicyServed) {
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  control_.fail_loads = true;
  EXPECT_EQ(Load(2, "two").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker_->served().Of(WeightSet::kLive).version, 1);
  Submit(5, 3);
  EXPECT_TRUE(Wait(5).error.ok());
}

}  // namespace
}  // namespace dapd
