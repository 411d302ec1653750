#include "common/rpc/pool/worker_pool.h"

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/fake_worker.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using Pool = WorkerPool<FakeTask, FakeResult>;

// A name service the test can change, two workers, and a count of outcomes.
class WorkerPoolTest : public ::testing::Test {
 protected:
  WorkerPoolTest() {
    options_.role = "rollout";
    options_.addresses = {"workers:1"};
    options_.resolve_interval = absl::Milliseconds(20);
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.backoff.initial = absl::Milliseconds(5);
    options_.backoff.max = absl::Milliseconds(20);
    options_.resolver = [this](const std::string&) { return Resolve(); };
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      MutexLock lock(&mutex_);
      ++outcomes_[TaskOutcomeName(outcome)];
    };
  }

  void Start(int64_t version = 1) {
    pool_ = std::make_unique<Pool>(options_, [this](const std::string& where) {
      FakeWorker* worker = where == "a" ? &a_ : where == "b" ? &b_ : nullptr;
      return std::make_unique<FakeSession>(worker);
    });
    SetVersion(version);
  }
  void SetVersion(int64_t version) {
    auto update = std::make_shared<PolicyUpdate>();
    update->version = version;
    pool_->SetUpdates({{WeightSet::kLive, update}});
  }

  absl::StatusOr<std::vector<std::string>> Resolve() {
    MutexLock lock(&mutex_);
    return endpoints_;
  }
  void SetEndpoints(absl::StatusOr<std::vector<std::string>> endpoints) {
    MutexLock lock(&mutex_);
    endpoints_ = std::move(endpoints);
  }
  int OutcomeCount(const std::string& name) {
    MutexLock lock(&mutex_);
    return outcomes_[name];
  }

  template <typename Condition>
  static bool Eventually(Condition condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  bool HasWorkerIn(const std::string& address, WorkerStage stage) {
    for (const WorkerState& worker : pool_->Workers()) {
      if (worker.address == address && worker.stage == stage) return true;
    }
    return false;
  }

  // The ids of the next `count` results, in order of arrival.
  std::vector<uint64_t> Collect(int count) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < count; ++i) {
      const absl::StatusOr<FakeResult> result = pool_->Next();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) break;
      ids.push_back(result->id);
    }
    return ids;
  }

  Mutex mutex_;
  absl::StatusOr<std::vector<std::string>> endpoints_ =
      std::vector<std::string>{"a"};
  std::map<std::string, int> outcomes_;
  FakeWorker a_{"a"};
  FakeWorker b_{"b"};
  WorkerPoolOptions options_;
  std::unique_ptr<Pool> pool_;
};

std::vector<FakeAnswer> NoAnswer(const FakeTask&, int64_t) { return {}; }

TEST_F(WorkerPoolTest, EveryTaskIsAnsweredOnce) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  Start();
  for (uint64_t id = 0; id < 100; ++id) pool_->Submit({id});
  std::vector<uint64_t> ids = Collect(100);
  std::sort(ids.begin(), ids.end());
  for (uint64_t id = 0; id < 100; ++id) EXPECT_EQ(ids[id], id);
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("accepted") == 100; }));
  EXPECT_EQ(pool_->Next().status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerPoolTest, AWorkerHasAtMostWhatItTakesAtATime) {
  a_.SetHandler(NoAnswer);
  Start();
  for (uint64_t id = 0; id < 10; ++id) pool_->Submit({id});
  ASSERT_TRUE(
      Eventually([&] { return a_.seen().size() == FakeWorker::kMaxInFlight; }));
  EXPECT_EQ(pool_->Workers().front().in_flight, FakeWorker::kMaxInFlight);
}

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
  // A new connection has nothing.
  a_.Kill(absl::OkStatus());
  pool_->Submit({20});
  ASSERT_EQ(Collect(1).size(), 1U);
  EXPECT_EQ(a_.loaded_sets().size(), 6U);
}

TEST_F(WorkerPoolTest, ATaskGoesToTheWorkerThatHasItsPrefix) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  Start();
  ASSERT_TRUE(Eventually([&] {
    return HasWorkerIn("a", WorkerStage::kReady) &&
           HasWorkerIn("b", WorkerStage::kReady);
  }));
  for (uint64_t id = 0; id < 10; ++id) pool_->SubmitPrefix({id, 5});
  ASSERT_TRUE(Eventually(
      [&] { return a_.prefixes().size() + b_.prefixes().size() == 10; }));
  EXPECT_EQ(a_.prefixes().size(), 5U);
  for (uint64_t id = 0; id < 10; ++id) pool_->SubmitPrefix({id, 9});
  ASSERT_TRUE(Eventually([&] {
    int64_t known = 0;
    for (const FakeWorker* worker : {&a_, &b_}) {
      for (const auto& [id, tokens] : worker->prefixes()) known += tokens;
    }
    return known == 90;
  }));
  for (uint64_t id = 0; id < 10; ++id) {
    FakeWorker& home = a_.prefixes().contains(id) ? a_ : b_;
    pool_->Submit({id});
    Collect(1);
    EXPECT_EQ(home.seen().back(), id);
  }
}

TEST_F(WorkerPoolTest, APrefixOfALostWorkerIsGivenToAnotherOne) {
  Start();
  pool_->SubmitPrefix({7, 5});
  ASSERT_TRUE(Eventually([&] { return a_.prefixes().contains(7); }));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.Kill(absl::UnavailableError("gone"));
  EXPECT_TRUE(Eventually([&] { return b_.prefixes().contains(7); }));
  EXPECT_EQ(b_.prefixes().at(7), 5);
  pool_->Submit({7});
  Collect(1);
  EXPECT_THAT(b_.seen(), ElementsAre(7));
}

TEST_F(WorkerPoolTest, ABusyHomeGivesItsTaskAway) {
  a_.SetHandler(NoAnswer);
  Start();
  for (uint64_t id = 0; id < 3; ++id) pool_->SubmitPrefix({id, 5});
  ASSERT_TRUE(Eventually([&] { return a_.prefixes().size() == 3; }));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("b", WorkerStage::kReady); }));
  for (uint64_t id = 0; id < 3; ++id) pool_->Submit({id});
  EXPECT_THAT(Collect(1), ElementsAre(2));
  EXPECT_TRUE(Eventually([&] { return a_.prefixes().at(2) == -1; }));
}

TEST_F(WorkerPoolTest, AWithdrawalReachesWhoHasThePrefix) {
  Start();
  pool_->SubmitPrefix({1, 5});
  ASSERT_TRUE(Eventually([&] { return a_.prefixes().contains(1); }));
  pool_->WithdrawPrefix(1);
  pool_->WithdrawPrefix(2);
  EXPECT_TRUE(Eventually([&] { return a_.prefixes().at(1) == -1; }));
  EXPECT_FALSE(a_.prefixes().contains(2));
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

TEST_F(WorkerPoolTest, AWorkerThatIsStillLoadingIsLeftItsShare) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetHandler(NoAnswer);
  b_.SetHandler(NoAnswer);
  b_.HoldLoad(true);
  Start();
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("a", WorkerStage::kReady); }));
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("b", WorkerStage::kLoading); }));
  pool_->Submit({0});
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 1; }));
  EXPECT_TRUE(b_.seen().empty());
  b_.HoldLoad(false);
  ASSERT_TRUE(Eventually([&] { return b_.seen().size() == 1; }));
  EXPECT_EQ(a_.seen().size(), 1U);
}

TEST_F(WorkerPoolTest, TheShareOfALostWorkerGoesToTheOthers) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetHandler(NoAnswer);
  b_.SetLoadStatus(absl::UnavailableError("no memory"));
  Start();
  pool_->Submit({0});
  pool_->Submit({1});
  EXPECT_TRUE(Eventually([&] { return a_.seen().size() == 2; }));
}

TEST_F(WorkerPoolTest, TasksOfADyingWorkerAreDoneElsewhere) {
  a_.SetHandler(NoAnswer);
  Start();
  for (uint64_t id = 0; id < 4; ++id) pool_->Submit({id});
  ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 2; }));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  ASSERT_TRUE(Eventually([&] { return b_.seen().size() == 2; }));
  a_.Kill(absl::UnavailableError("connection refused"));
  EXPECT_THAT(Collect(4), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_THAT(b_.seen(), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("lost") == 2; }));
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

TEST_F(WorkerPoolTest, ATaskWithoutAnswerInTimeGoesToAnotherWorker) {
  options_.task_timeout = absl::Milliseconds(200);
  a_.SetHandler(NoAnswer);
  Start();
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return !a_.seen().empty(); }));
  a_.SetConnectStatus(absl::UnavailableError("hangs"));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  const absl::StatusOr<FakeResult> result = pool_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->worker, "b");
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("timeout") == 1; }));
}

TEST_F(WorkerPoolTest, ATaskThatTakesLongIsAlsoGivenToAnIdleWorker) {
  options_.hedge.minimum = absl::Milliseconds(50);
  options_.hedge.factor = 0.0;
  a_.SetHandler([](const FakeTask& task, int64_t) {
    return task.id == 9
               ? std::vector<FakeAnswer>{}
               : std::vector<FakeAnswer>{{task.id, FakeResult{task.id, "a"}}};
  });
  Start();
  for (uint64_t id = 1; id <= 4; ++id) pool_->Submit({id});
  Collect(4);
  pool_->Submit({9});
  ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 5; }));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  const absl::StatusOr<FakeResult> result = pool_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->worker, "b");
  EXPECT_EQ(OutcomeCount("hedged"), 1);
  EXPECT_TRUE(HasWorkerIn("a", WorkerStage::kReady)) << "slow is not lost";
}

TEST_F(WorkerPoolTest, ATaskThatLosesItsWorkerTooOftenFails) {
  options_.max_attempts = 3;
  a_.SetHandler([&](const FakeTask& task, int64_t) {
    return std::vector<FakeAnswer>{
        {task.id, absl::InternalError("the forward pass failed")}};
  });
  Start();
  pool_->Submit({1});
  const absl::Status status = pool_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("task 1 was given up after 3 attempts"));
}

TEST_F(WorkerPoolTest, AnErrorThatNoRetryMendsFailsItsTaskAlone) {
  a_.SetHandler([&](const FakeTask& task, int64_t version) {
    if (task.id != 1)
      return std::vector<FakeAnswer>{a_.Result(task.id, version)};
    return std::vector<FakeAnswer>{
        {task.id, absl::InvalidArgumentError("the prompt is empty")}};
  });
  Start();
  pool_->Submit({1});
  const absl::Status status = pool_->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("rollout worker a refused task 1: the prompt is empty"));
  pool_->Submit({2});
  EXPECT_THAT(Collect(1), ElementsAre(2));
  EXPECT_EQ(a_.connects(), 1);
}

TEST_F(WorkerPoolTest, AWorkerThatRefusesATaskMayFinishWhatItHas) {
  SetEndpoints(std::vector<std::string>{"a"});
  a_.SetHandler([&](const FakeTask& task, int64_t) {
    if (task.id == 0) return std::vector<FakeAnswer>{};
    return std::vector<FakeAnswer>{
        {task.id, absl::UnavailableError("shutting down")}};
  });
  Start();
  pool_->Submit({0});
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return OutcomeCount("lost") == 1; }));
  EXPECT_THAT(a_.seen(), ElementsAre(0, 1));
  a_.Push(a_.Result(0, 1));
  EXPECT_THAT(Collect(1), ElementsAre(0));
  a_.SetHandler(nullptr);
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolTest, ASecondAnswerToATaskIsADuplicate) {
  a_.SetHandler([&](const FakeTask& task, int64_t version) {
    return std::vector<FakeAnswer>{a_.Result(task.id, version),
                                   a_.Result(task.id, version)};
  });
  Start();
  pool_->Submit({1});
  EXPECT_THAT(Collect(1), ElementsAre(1));
  ASSERT_TRUE(Eventually([&] { return OutcomeCount("duplicate") == 1; }));
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("accepted") == 1; }));
}

TEST_F(WorkerPoolTest, AStaleAnswerIsDroppedAndItsTaskDoneAgain) {
  int calls = 0;
  a_.SetHandler([&](const FakeTask& task, int64_t version) {
    if (++calls == 1) {
      return std::vector<FakeAnswer>{
          {task.id, absl::FailedPreconditionError("serves version 4")}};
    }
    return std::vector<FakeAnswer>{a_.Result(task.id, version)};
  });
  Start(5);
  pool_->Submit({1});
  EXPECT_THAT(Collect(1), ElementsAre(1));
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("stale") == 1; }));
  EXPECT_THAT(a_.loaded_versions(), ElementsAre(5, 5));
}

TEST_F(WorkerPoolTest, ANewUpdateRecallsWhatIsInFlight) {
  a_.SetHandler([&](const FakeTask& task, int64_t version) {
    if (version == 1) return std::vector<FakeAnswer>{};
    return std::vector<FakeAnswer>{a_.Result(task.id, version)};
  });
  Start(1);
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return !a_.seen().empty(); }));
  SetVersion(2);
  const absl::StatusOr<FakeResult> result = pool_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 2);
  EXPECT_EQ(a_.connects(), 1);
  EXPECT_TRUE(Eventually([&] { return OutcomeCount("lost") == 0; }));
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
  absl::SleepFor(4 * options_.resolve_interval);
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

TEST_F(WorkerPoolTest, OneUnfitWorkerDoesNotStopTheOthers) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetLoadStatus(absl::FailedPreconditionError("another model"));
  Start();
  for (uint64_t id = 0; id < 4; ++id) pool_->Submit({id});
  EXPECT_THAT(Collect(4), UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(a_.seen().empty());
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
