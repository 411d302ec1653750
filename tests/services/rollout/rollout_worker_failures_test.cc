// Tests requests that outlive their stream, step, device or worker.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/rollout/rollout_worker_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

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

TEST_F(RolloutWorkerTest, WhatWaitsOfADeadStreamIsNotSampled) {
  control_.slots = 1;
  control_.hold = true;
  control_.eos_after = 1 << 29;  // the answer would never end
  std::atomic<int64_t> waiting = 0;
  RolloutWorker::Options options;
  options.observer.on_load = [&](int64_t, int64_t now) { waiting = now; };
  Start(std::move(options));
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 3);
  Submit(6, 1 << 29);
  ASSERT_TRUE(Eventually([&] { return waiting == 1; }));
  worker_->CancelStream(outbox_);
  outbox_ = std::make_shared<GenerationOutbox>();
  Submit(7, 3);
  control_.hold = false;
  EXPECT_TRUE(Wait(7).error.ok());
  worker_.reset();
}

// The compute thread is busy with an upload while the stream dies. Nobody waits
// for the request that it takes up next.
TEST_F(RolloutWorkerTest, ARequestWhoseStreamDiedOnItsWayIsNotSampled) {
  std::atomic<bool> is_busy = true;
  std::atomic<int> reports = 0;
  RolloutWorker::Options options;
  options.observer.on_load = [&](int64_t, int64_t) {
    while (is_busy) absl::SleepFor(absl::Milliseconds(1));
  };
  options.observer.on_request = [&](const RolloutReport&) { ++reports; };
  Start(std::move(options));
  std::jthread upload([&] { EXPECT_TRUE(Load(1, "one").ok()); });
  Submit(5, 3);
  outbox_->Abandon();
  is_busy = false;
  upload.join();
  ASSERT_TRUE(Load(2, "two").ok());  // is loaded after the request
  worker_.reset();
  EXPECT_EQ(reports, 0);
}

TEST_F(RolloutWorkerTest, ARequestThatTheSamplerRefusesFailsAlone) {
  Start();
  ASSERT_TRUE(Load(1, "one").ok());
  control_.refuse = true;
  Submit(5, 3);
  EXPECT_EQ(Wait(5).error, absl::InvalidArgumentError("does not fit"));
  control_.refuse = false;
  Submit(6, 3);
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, AFailedStepFailsItsRequestsAndTheWorkerGoesOn) {
  ASSERT_NO_FATAL_FAILURE(StartHolding());
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
    // The process ends here, and other workers answer the open requests.
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

TEST_F(RolloutWorkerTest, ALostDeviceIsReportedByAnUploadToo) {
  std::atomic<int> reports = 0;
  RolloutWorker::Options options;
  options.on_broken = [&](const absl::Status& why) {
    EXPECT_EQ(why, absl::AbortedError("lost"));
    ++reports;
  };
  Start(options);
  ASSERT_TRUE(Load(1, "one").ok());
  control_.lose_device = true;
  EXPECT_TRUE(absl::IsAborted(Load(1, "one").status()));  // only probes
  EXPECT_EQ(reports, 1);
  EXPECT_TRUE(absl::IsAborted(Load(2, "two").status()));
  EXPECT_EQ(reports, 2);
}

TEST_F(RolloutWorkerTest, AnAnswerWithoutMemoryFailsAlone) {
  int64_t tokens = 0;  // read once the worker has stopped
  Start({.observer = {.on_step = [&](int64_t new_tokens, double /*seconds*/) {
           tokens += new_tokens;
         }}});
  ASSERT_TRUE(Load(1, "one").ok());
  control_.longest = 100;
  control_.hold = true;
  Submit(5, 200);
  Submit(6, 3);
  control_.hold = false;
  EXPECT_EQ(Wait(5).error, absl::ResourceExhaustedError("no memory"));
  EXPECT_TRUE(Wait(6).error.ok());
  EXPECT_EQ(control_.running, 0);
  worker_.reset();
  EXPECT_EQ(tokens, 3);
}

TEST_F(RolloutWorkerTest, WhatWaitsOutlivesAStepWithoutMemory) {
  control_.slots = 1;
  ASSERT_NO_FATAL_FAILURE(StartHolding());
  Submit(6, 3);
  control_.fail_once = true;
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kResourceExhausted);
  control_.hold = false;
  EXPECT_TRUE(Wait(6).error.ok());
}

TEST_F(RolloutWorkerTest, ShutdownLetsRunningRequestsEnd) {
  ASSERT_NO_FATAL_FAILURE(StartHolding());
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
  ASSERT_NO_FATAL_FAILURE(StartHolding());
  worker_->Shutdown(absl::Milliseconds(20));
  EXPECT_EQ(Wait(5).error.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Load(2, "two").status().code(), absl::StatusCode::kUnavailable);
}

// Has one request on each of three streams: the first has the only slot, the
// second has the only place to wait, and the third is held back.
class CrowdedRolloutWorkerTest : public RolloutWorkerTest {
 protected:
  void SetUp() override {
    control_.slots = 1;
    control_.hold = true;
    Start({.max_waiting = 1});
    ASSERT_TRUE(Load(1, "one").ok());
    for (const uint64_t id : {5, 6}) Submit(id, 3);
    WaitForRunning(1);
    ASSERT_TRUE(third_->Open(7));
    holder_ = std::jthread([this] {
      DecodeRequest request;
      request.prompt_ids = {1, 2};
      request.sampling.max_new_tokens = 3;
      worker_->Submit(7, std::move(request), {true, 1, "one"}, third_);
      returned_ = true;
    });
    absl::SleepFor(absl::Milliseconds(20));
    ASSERT_FALSE(returned_);
  }
  void TearDown() override { worker_->Shutdown(absl::ZeroDuration()); }

  // Returns how the request that was held back ends.
  absl::Status EndOfTheThird() {
    while (auto message = third_->PopFor(absl::Seconds(20))) {
      if (!message->has_tokens()) return ErrorOf(*message);
    }
    return absl::DeadlineExceededError("no end");
  }

  std::shared_ptr<GenerationOutbox> third_ =
      std::make_shared<GenerationOutbox>();
  std::atomic<bool> returned_ = false;
  std::jthread holder_;
};

TEST_F(CrowdedRolloutWorkerTest, WhatFindsNoPlaceIsHeldBackUntilThereIsOne) {
  control_.hold = false;
  for (const uint64_t id : {5, 6}) EXPECT_TRUE(Wait(id).error.ok());
  EXPECT_TRUE(EndOfTheThird().ok());
}

TEST_F(CrowdedRolloutWorkerTest, AnUploadDoesNotWaitForWhatIsHeldBack) {
  ASSERT_TRUE(Load(2, "two").ok());
  for (const uint64_t id : {5, 6}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(Wait(id).error));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(EndOfTheThird()));
}

TEST_F(CrowdedRolloutWorkerTest, ADeadStreamIsNotHeldBack) {
  worker_->CancelStream(third_);
  holder_.join();
  control_.hold = false;
  for (const uint64_t id : {5, 6}) EXPECT_TRUE(Wait(id).error.ok());
}

TEST_F(CrowdedRolloutWorkerTest, AnotherStreamThatDiesMakesRoom) {
  worker_->CancelStream(outbox_);
  control_.hold = false;
  EXPECT_TRUE(EndOfTheThird().ok());
}

TEST_F(CrowdedRolloutWorkerTest, ShutdownRefusesWhatIsHeldBack) {
  std::jthread stopper([&] { worker_->Shutdown(absl::Seconds(20)); });
  EXPECT_TRUE(absl::IsUnavailable(EndOfTheThird()));
  control_.hold = false;
  for (const uint64_t id : {5, 6}) EXPECT_TRUE(Wait(id).error.ok());
}

}  // namespace
}  // namespace dapd
