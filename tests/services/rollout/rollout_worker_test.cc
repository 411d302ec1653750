#include "services/rollout/rollout_worker.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/fake_sampler.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// All that one request was answered.
struct Answer {
  std::vector<int32_t> ids;
  FinishReason finish_reason = FinishReason::kNone;
  ServedPolicy policy;
  SampleTimes times;
  absl::Status error;
};

class RolloutWorkerTest : public ::testing::Test {
 protected:
  void Start(RolloutWorker::Options options = {}) {
    worker_ = std::make_unique<RolloutWorker>(
        std::make_unique<FakeSampler>(&control_), std::move(options));
  }

  absl::StatusOr<LoadResult> Load(int64_t version, const std::string& digest) {
    AdapterUpload upload;
    upload.version = version;
    upload.adapter.digest = digest;
    upload.probe_ids = {1, 2, 3};
    return worker_->Load(std::move(upload), [] { return false; });
  }

  void Submit(uint64_t id,
              int64_t max_new_tokens,
              int64_t version = 1,
              const std::string& digest = "one") {
    ASSERT_TRUE(outbox_->Open(id));
    DecodeRequest request;
    request.prompt_ids = {1, 2};
    request.sampling.max_new_tokens = max_new_tokens;
    worker_->Submit(id, std::move(request), {true, version, digest}, outbox_);
  }

  // Reads the outbox until `id` has ended; answers of others are kept.
  Answer Wait(uint64_t id) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!ended_.contains(id) && absl::Now() < deadline) {
      const auto event = outbox_->PopFor(absl::Seconds(1));
      if (!event.has_value()) continue;
      Answer& answer = answers_[event->request_id];
      answer.ids.insert(answer.ids.end(), event->ids.begin(), event->ids.end());
      if (event->kind == GenerationEvent::Kind::kTokens) continue;
      answer.finish_reason = event->finish_reason;
      answer.policy = event->policy;
      answer.times = event->times;
      answer.error = event->error;
      ended_.insert(event->request_id);
    }
    EXPECT_TRUE(ended_.contains(id)) << "no end of request " << id;
    return answers_[id];
  }

  void WaitForRunning(int count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (control_.running != count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_EQ(control_.running, count);
  }

  FakeSamplerControl control_;
  std::shared_ptr<GenerationOutbox> outbox_ =
      std::make_shared<GenerationOutbox>();
  std::map<uint64_t, Answer> answers_;
  std::set<uint64_t> ended_;
  std::unique_ptr<RolloutWorker> worker_;
};

TEST_F(RolloutWorkerTest, ARequestGetsItsTokensAndTheirPolicy) {
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  const Answer answer = Wait(5);
  EXPECT_THAT(answer.ids, ElementsAre(10, 11, 12));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(answer.policy.version, 1);
  EXPECT_EQ(answer.policy.digest, "one");
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
  const absl::Time before = absl::Now();
  constexpr uint64_t kRequests = 9;
  for (uint64_t id = 0; id < kRequests; ++id) {
    Submit(id, 1 + static_cast<int64_t>(id % 4));
  }
  // Not one after the other in the first slot, each before the next is there.
  WaitForRunning(2);
  control_.hold = false;
  std::map<uint32_t, std::vector<SampleTimes>> by_slot;
  for (uint64_t id = 0; id < kRequests; ++id) {
    const SampleTimes times = Wait(id).times;
    EXPECT_LE(before, times.arrived);
    EXPECT_LE(times.arrived, times.started);
    EXPECT_LE(times.started, times.first_token);
    EXPECT_LE(times.first_token, times.ended);
    by_slot[times.slot].push_back(times);
  }
  EXPECT_EQ(by_slot.size(), 2U);
  EXPECT_TRUE(by_slot.contains(0) && by_slot.contains(1));
  for (auto& [slot, all] : by_slot) {
    std::ranges::sort(all, {}, &SampleTimes::started);
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_LE(all[i - 1].ended, all[i].started) << "slot " << slot;
    }
  }
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
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  const auto again = Load(1, "one");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->applied.modules_applied, 7);
  EXPECT_EQ(control_.loads, 1);
  control_.hold = false;
  EXPECT_TRUE(Wait(5).error.ok());
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

TEST_F(RolloutWorkerTest, ADeadStreamFreesItsSlots) {
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  Submit(6, 3);
  WaitForRunning(2);
  worker_->CancelStream(outbox_);
  WaitForRunning(0);
  EXPECT_EQ(control_.cancelled, 2);
}

TEST_F(RolloutWorkerTest, ARequestThatComesAfterItsStreamDiedTakesNoSlot) {
  control_.slots = 1;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  const auto dead = std::make_shared<GenerationOutbox>();
  worker_->CancelStream(dead);
  ASSERT_TRUE(dead->Open(5));
  DecodeRequest endless;
  endless.prompt_ids = {1, 2};
  endless.sampling.max_new_tokens = 1 << 29;
  worker_->Submit(5, std::move(endless), {true, 1, "one"}, dead);
  Submit(6, 3);
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, AFailedStepFailsItsRequestsAndTheWorkerGoesOn) {
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  control_.fail_steps = true;
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kResourceExhausted);
  control_.fail_steps = false;
  control_.hold = false;
  Submit(6, 3);
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, ADeviceThatIsLostIsReportedAfterThreeFailures) {
  std::atomic<int> reports = 0;
  RolloutWorker::Options options;
  options.on_broken = [&](const absl::Status& why) {
    EXPECT_EQ(why.message(), "CUDA error");
    ++reports;
  };
  Start(options);
  ASSERT_TRUE(Load(1, "one").ok());
  control_.break_device = true;
  for (const uint64_t id : {5, 6}) {
    Submit(id, 3);
    EXPECT_EQ(Wait(id).error.code(), absl::StatusCode::kInternal);
  }
  control_.break_device = false;
  Submit(7, 3);
  EXPECT_TRUE(Wait(7).error.ok());
  EXPECT_EQ(reports, 0) << "a step in between that works";
  control_.break_device = true;
  for (const uint64_t id : {8, 9, 10}) {
    Submit(id, 3);
    EXPECT_EQ(Wait(id).error.code(), absl::StatusCode::kInternal);
  }
  worker_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(reports, 1);
}

TEST_F(RolloutWorkerTest, ALostDeviceIsReportedBeforeItsRequestsFail) {
  std::atomic<int> reports = 0;
  RolloutWorker::Options options;
  options.on_broken = [&](const absl::Status& why) {
    EXPECT_EQ(why, absl::AbortedError("lost"));
    // The process ends here: other workers do what nobody was told of.
    EXPECT_EQ(control_.cancelled, 0);
    ++reports;
  };
  Start(options);
  ASSERT_TRUE(Load(1, "one").ok());
  control_.lose_device = true;
  Submit(5, 3);
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(reports, 1);
}

TEST_F(RolloutWorkerTest, AnAnswerWithoutMemoryFailsAlone) {
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  control_.longest = 100;
  control_.hold = true;
  Submit(5, 200);
  Submit(6, 3);
  control_.hold = false;
  EXPECT_EQ(Wait(5).error, absl::ResourceExhaustedError("no memory"));
  EXPECT_TRUE(Wait(6).error.ok());
  EXPECT_EQ(control_.running, 0);
}

TEST_F(RolloutWorkerTest, WhatWaitsOutlivesAStepWithoutMemory) {
  control_.slots = 1;
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  Submit(6, 3);
  control_.fail_once = true;
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kResourceExhausted);
  control_.hold = false;
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, TooManyWaitingRequestsAreRefused) {
  control_.slots = 1;
  control_.hold = true;
  RolloutWorker::Options options;
  options.max_waiting = 1;
  Start(options);
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  Submit(6, 3);
  Submit(7, 3);
  EXPECT_EQ(Wait(7).error.code(), absl::StatusCode::kResourceExhausted);
  control_.hold = false;
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, ShutdownLetsRunningRequestsEnd) {
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  std::jthread releaser([&] {
    absl::SleepFor(absl::Milliseconds(20));
    control_.hold = false;
  });
  worker_->Shutdown(absl::Seconds(20));
  EXPECT_THAT(Wait(5).ids, ElementsAre(10, 11, 12));
  Submit(6, 3);
  EXPECT_EQ(Wait(6).error.code(), absl::StatusCode::kUnavailable);
}

TEST_F(RolloutWorkerTest, ShutdownFailsWhatOutlastsTheGrace) {
  control_.hold = true;
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  WaitForRunning(1);
  worker_->Shutdown(absl::Milliseconds(20));
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Load(2, "two").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace dapd
