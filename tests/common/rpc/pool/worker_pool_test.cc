// Tests which workers a pool has, what they serve, and how failures are
// reported.

#include "common/rpc/pool/worker_pool.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/rpc/pool/worker_pool_fixture.h"
#include "tests/fakes/eventually.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class WorkerPoolTest : public WorkerPoolFixture {};

TEST_F(WorkerPoolTest, OnlyTheSetsThatChangedAreSentAgain) {
  Start();
  pool_->Submit({1});
  ASSERT_EQ(Collect(1).size(), 1U);
  const auto snapshot = std::make_shared<const PolicyUpdate>();
  const auto load = [&](int64_t version) {
    auto mean = std::make_shared<PolicyUpdate>();
    mean->version = version;
    pool_->SetUpdates(
        {{WeightSet::kSnapshot, snapshot}, {WeightSet::kEma, mean}});
    pool_->Submit({static_cast<uint64_t>(10 + version)});
    ASSERT_EQ(Collect(1).size(), 1U);
  };
  load(2);
  load(3);
  EXPECT_EQ(a_.loaded_sets(),
            (std::vector<WeightSet>{WeightSet::kLive,
                                    WeightSet::kSnapshot,
                                    WeightSet::kEma,
                                    WeightSet::kEma}));
  EXPECT_EQ(a_.loaded_versions(), (std::vector<int64_t>{1, 0, 2, 3}));
  const WorkerState state = pool_->Workers().front();
  EXPECT_EQ(state.policy_version, 3);
  EXPECT_EQ(state.weights.at(WeightSet::kSnapshot), 0);
  EXPECT_EQ(state.weights.at(WeightSet::kEma), 3);
  // A worker with a new connection has no weights.
  a_.Kill(absl::OkStatus());
  pool_->Submit({20});
  ASSERT_EQ(Collect(1).size(), 1U);
  EXPECT_EQ(a_.loaded_sets().size(), 6U);
}

TEST_F(WorkerPoolTest, TheLoadCountsWorkersByStateAndTasksByPlace) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetHandler(NoAnswer);
  b_.SetConnectStatus(absl::UnavailableError("connection refused"));
  PoolLoad last;  // guarded by mutex_
  options_.observer.on_load = [&](const PoolLoad& load) {
    MutexLock lock(&mutex_);
    last = load;
  };
  Start();
  for (uint64_t id = 0; id < 5; ++id) pool_->Submit({id});
  EXPECT_TRUE(Eventually([&] {
    MutexLock lock(&mutex_);
    return last.workers[WorkerStage::kReady] == 1 &&
           last.workers[WorkerStage::kLost] == 1 &&
           last.in_flight == FakeWorker::kMaxInFlight &&
           last.pending == 5 - FakeWorker::kMaxInFlight;
  }));
  pool_->Shutdown();
}

TEST_F(WorkerPoolTest, AWorkerThatComesBackIsLoadedAndUsedAgain) {
  a_.SetHandler(NoAnswer);
  Start(3);
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return !a_.seen().empty(); }));
  a_.SetHandler(nullptr);
  a_.Kill(absl::OkStatus());
  EXPECT_THAT(Collect(1), ElementsAre(1));
  EXPECT_THAT(a_.loaded_versions(), ElementsAre(3, 3));
}

TEST_F(WorkerPoolTest, NoTaskIsSentBeforeTheUpdateIsLoaded) {
  a_.SetLoadStatus(absl::UnavailableError("still reading the model"));
  Start();
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return a_.connects() >= 3; }));
  EXPECT_TRUE(a_.seen().empty());
  a_.SetLoadStatus(absl::OkStatus());
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolTest, NewAddressesAreDialledAndVanishedOnesDropped) {
  Start();
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("a", WorkerStage::kReady); }));
  SetEndpoints(std::vector<std::string>{"b"});
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("b", WorkerStage::kReady); }));
  ASSERT_TRUE(Eventually([&] { return pool_->Workers().size() == 1; }));
  pool_->Submit({1});
  EXPECT_EQ(pool_->Next()->worker, "b");
}

TEST_F(WorkerPoolTest, AVanishedWorkerFinishesWhatItHas) {
  a_.SetHandler(NoAnswer);
  Start();
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return !a_.seen().empty(); }));
  SetEndpoints(std::vector<std::string>{"b"});
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("b", WorkerStage::kReady); }));
  a_.Push(a_.Result(1, 1));
  const absl::StatusOr<FakeResult> result = pool_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->worker, "a");
  EXPECT_TRUE(Eventually([&] { return pool_->Workers().size() == 1; }));
}

TEST_F(WorkerPoolTest, AFailingNameServiceDropsNobody) {
  Start();
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("a", WorkerStage::kReady); }));
  SetEndpoints(absl::UnavailableError("no name server"));
  const int before = TimesResolved();
  ASSERT_TRUE(Eventually([&] { return TimesResolved() >= before + 2; }));
  pool_->Submit({1});
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolTest, WithoutAnyWorkerNextNamesEachOneAndItsError) {
  options_.peer_timeout = absl::Milliseconds(300);
  a_.SetConnectStatus(absl::UnavailableError("connection refused"));
  SetEndpoints(std::vector<std::string>{"a", "nowhere"});
  Start();
  pool_->Submit({1});
  const absl::Status status = pool_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("no usable rollout worker at workers:1"));
  EXPECT_THAT(message, HasSubstr("a is "));
  EXPECT_THAT(message, HasSubstr("connection refused"));
  EXPECT_THAT(message, HasSubstr("nowhere is "));
  EXPECT_THAT(message, HasSubstr("nothing listens"));
  a_.SetConnectStatus(absl::OkStatus());
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("a", WorkerStage::kReady); }));
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolTest, AnUnresolvableNameIsInTheMessage) {
  options_.peer_timeout = absl::Milliseconds(100);
  SetEndpoints(absl::UnavailableError("no such host"));
  Start();
  pool_->Submit({1});
  const absl::Status status = pool_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("workers:1: no such host"));
}

TEST_F(WorkerPoolTest, WhenAllWorkersAreUnfitNextDoesNotWait) {
  for (const absl::Status& refusal :
       {absl::FailedPreconditionError("probe -1.5, expected -2.5"),
        absl::InvalidArgumentError("another rank"),
        absl::UnimplementedError("unknown service")}) {
    a_.SetLoadStatus(refusal);
    Start();
    pool_->Submit({1});
    const absl::Status status = pool_->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(refusal.message())));
  }
}

TEST_F(WorkerPoolTest, TwoAddressesOfOneProcessAreOneWorker) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  for (FakeWorker* worker : {&a_, &b_}) worker->SetInstance("process 7");
  std::atomic<int64_t> counted = 0;
  options_.observer.on_load = [&](const PoolLoad& load) {
    int64_t sum = 0;
    for (const auto& [stage, workers] : load.workers) sum += workers;
    counted = sum;
  };
  Start();
  ASSERT_TRUE(Eventually([&] {
    const auto workers = pool_->Workers();
    return workers.size() == 1 && workers[0].stage == WorkerStage::kReady &&
           a_.connects() == 1 && b_.connects() == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return counted == 1; }));
  const bool is_a = pool_->Workers().front().address == "a";
  FakeWorker& first = is_a ? a_ : b_;
  FakeWorker& alias = is_a ? b_ : a_;
  for (uint64_t id = 0; id < 10; ++id) pool_->Submit({id});
  EXPECT_EQ(Collect(10).size(), 10U);
  EXPECT_EQ(first.seen().size(), 10U);
  EXPECT_TRUE(alias.loaded_versions().empty());
  EXPECT_EQ(alias.connects(), 1) << "it is not asked again meanwhile";

  // The other address takes the place of the lost one and keeps it.
  first.Kill(absl::UnavailableError("no route"));
  pool_->Submit({10});
  EXPECT_EQ(Collect(1).size(), 1U);
  EXPECT_EQ(alias.seen().size(), 1U);
  first.SetConnectStatus(absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return pool_->Workers().size() == 1; }));
  EXPECT_TRUE(HasWorkerIn(is_a ? "b" : "a", WorkerStage::kReady));
  pool_->Shutdown();
}

TEST_F(WorkerPoolTest, AnAliasCountsOnceTheAddressThatStoodForItHasLeft) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  for (FakeWorker* worker : {&a_, &b_}) worker->SetInstance("process 7");
  Start();
  ASSERT_TRUE(Eventually([&] {
    return pool_->Workers().size() == 1 && a_.connects() == 1 &&
           b_.connects() == 1;
  }));
  const bool is_a = pool_->Workers().front().address == "a";
  const std::string alias = is_a ? "b" : "a";
  (is_a ? b_ : a_).SetConnectStatus(absl::UnavailableError("no route"));
  SetEndpoints(std::vector<std::string>{alias});
  EXPECT_TRUE(Eventually([&] {
    return pool_->Workers().size() == 1 &&
           HasWorkerIn(alias, WorkerStage::kLost);
  }));
  // The worker may come back within peer_timeout.
  pool_->Submit({1});
  const auto result = pool_->NextWithin(absl::Milliseconds(50));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->has_value());
  (is_a ? b_ : a_).SetConnectStatus(absl::OkStatus());
  EXPECT_EQ(Collect(1).size(), 1U);
}

// localhost has such an address where workers listen on 127.0.0.1.
TEST_F(WorkerPoolTest, AnIpv6AddressThatNobodyListensAtIsNoLostWorker) {
  workers_ = {{"127.0.0.1:1", &a_}};
  SetEndpoints(std::vector<std::string>{"127.0.0.1:1", "[::1]:1"});
  std::atomic<int64_t> lost = 0;
  options_.observer.on_load = [&](const PoolLoad& load) {
    lost = load.workers.at(WorkerStage::kLost);
  };
  Start();
  ASSERT_TRUE(Eventually(
      [&] { return HasWorkerIn("127.0.0.1:1", WorkerStage::kReady); }));
  EXPECT_EQ(pool_->Workers().size(), 1U);
  EXPECT_TRUE(Eventually([&] { return lost == 0; }));
  // A worker that is lost after it was ready counts as lost.
  a_.Kill(absl::UnavailableError("no route"));
  EXPECT_TRUE(Eventually([&] { return lost == 1; }));
  EXPECT_EQ(pool_->Workers().front().address, "127.0.0.1:1");
  pool_->Shutdown();
}

TEST_F(WorkerPoolTest, WhereWorkersListenAtBothKindsOfAddressesALostOneIsOne) {
  workers_ = {{"1.1.1.1:1", &a_}, {"[2::2]:1", &b_}};
  SetEndpoints(std::vector<std::string>{"1.1.1.1:1", "[2::2]:1", "[2::3]:1"});
  Start();
  EXPECT_TRUE(Eventually([&] {
    return HasWorkerIn("1.1.1.1:1", WorkerStage::kReady) &&
           HasWorkerIn("[2::2]:1", WorkerStage::kReady) &&
           HasWorkerIn("[2::3]:1", WorkerStage::kLost);
  }));
}

TEST_F(WorkerPoolTest, OneUnfitWorkerDoesNotStopTheOthers) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetLoadStatus(absl::FailedPreconditionError("another model"));
  Start();
  for (uint64_t id = 0; id < 4; ++id) pool_->Submit({id});
  EXPECT_THAT(Collect(4), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(a_.seen().empty());
}

TEST_F(WorkerPoolTest, ShutdownDoesNotWaitForANameServiceThatHangs) {
  const auto answers = std::make_shared<std::atomic<bool>>(false);
  const auto asked = std::make_shared<std::atomic<bool>>(false);
  options_.resolver =
      [answers,
       asked](const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    *asked = true;
    while (!*answers) absl::SleepFor(absl::Milliseconds(1));
    return std::vector<std::string>{};
  };
  Start();
  ASSERT_TRUE(Eventually([&] { return asked->load(); }));
  pool_->Shutdown();
  EXPECT_FALSE(*answers);
  *answers = true;
}

TEST_F(WorkerPoolTest, ShutdownEndsAWaitingNext) {
  a_.SetHandler(NoAnswer);
  Start();
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return !a_.seen().empty(); }));
  std::jthread stopper([&] { pool_->Shutdown(); });
  EXPECT_EQ(pool_->Next().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace dapd
