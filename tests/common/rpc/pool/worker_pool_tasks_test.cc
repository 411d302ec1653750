// Tests which worker gets which task of a pool, and how answers are handled.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/common/rpc/pool/worker_pool_fixture.h"
#include "tests/fakes/eventually.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class WorkerPoolTasksTest : public WorkerPoolFixture {};

TEST_F(WorkerPoolTasksTest, EveryTaskIsAnsweredOnce) {
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

TEST_F(WorkerPoolTasksTest, AWorkerHasAtMostWhatItTakesAtATime) {
  a_.SetHandler(NoAnswer);
  Start();
  for (uint64_t id = 0; id < 10; ++id) pool_->Submit({id});
  ASSERT_TRUE(
      Eventually([&] { return a_.seen().size() == FakeWorker::kMaxInFlight; }));
  EXPECT_EQ(pool_->Workers().front().in_flight, FakeWorker::kMaxInFlight);
}

TEST_F(WorkerPoolTasksTest, ATaskGoesToTheWorkerThatHasItsPrefix) {
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

TEST_F(WorkerPoolTasksTest, APrefixOfALostWorkerIsGivenToAnotherOne) {
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

TEST_F(WorkerPoolTasksTest, ABusyHomeGivesItsTaskAway) {
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

TEST_F(WorkerPoolTasksTest, AWithdrawalReachesWhoHasThePrefix) {
  Start();
  pool_->SubmitPrefix({1, 5});
  ASSERT_TRUE(Eventually([&] { return a_.prefixes().contains(1); }));
  pool_->WithdrawPrefix(1);
  pool_->WithdrawPrefix(2);
  EXPECT_TRUE(Eventually([&] { return a_.prefixes().at(1) == -1; }));
  EXPECT_FALSE(a_.prefixes().contains(2));
}

TEST_F(WorkerPoolTasksTest, AWorkerThatIsStillLoadingIsLeftItsShare) {
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

TEST_F(WorkerPoolTasksTest, TheShareOfALostWorkerGoesToTheOthers) {
  SetEndpoints(std::vector<std::string>{"a", "b"});
  a_.SetHandler(NoAnswer);
  b_.SetLoadStatus(absl::UnavailableError("no memory"));
  Start();
  pool_->Submit({0});
  pool_->Submit({1});
  EXPECT_TRUE(Eventually([&] { return a_.seen().size() == 2; }));
}

TEST_F(WorkerPoolTasksTest, TasksOfADyingWorkerAreDoneElsewhere) {
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

TEST_F(WorkerPoolTasksTest, ATaskWithoutAnswerInTimeGoesToAnotherWorker) {
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

// No other worker takes a task whose home has room, and no worker answers a
// prefix.
TEST_F(WorkerPoolTasksTest, AWorkerThatTakesNothingOfWhatIsSentIsLost) {
  options_.task_timeout = absl::Milliseconds(200);
  Start();
  a_.HoldPrefixes(true);
  pool_->SubmitPrefix({1, 5});
  ASSERT_TRUE(Eventually([&] { return a_.holds_a_prefix(); }));
  SetEndpoints(std::vector<std::string>{"a", "b"});
  pool_->Submit({1});
  EXPECT_TRUE(Eventually([&] {
    const auto workers = pool_->Workers();
    return !workers.empty() && absl::StrContains(workers.front().last_error,
                                                 "it accepted none of what");
  }));
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolTasksTest, WhatAWorkerSaysIsKeptShort) {
  const std::string text(100'000, 'x');
  a_.SetConnectStatus(absl::UnavailableError(text));
  b_.SetHandler([text](const FakeTask& task, int64_t) {
    return std::vector<FakeAnswer>{{task.id, absl::InvalidArgumentError(text)}};
  });
  Start();
  ASSERT_TRUE(Eventually([&] {
    const auto workers = pool_->Workers();
    return !workers.empty() && !workers.front().last_error.empty();
  }));
  EXPECT_LT(pool_->Workers().front().last_error.size(), 5000U);
  SetEndpoints(std::vector<std::string>{"b"});
  pool_->Submit({1});
  const absl::Status refused = pool_->Next().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_LT(refused.message().size(), 5000U);
}

TEST_F(WorkerPoolTasksTest, ATaskThatLosesItsWorkerTooOftenFails) {
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
              HasSubstr("task 1 was given up after 3 attempts; the last one: "
                        "rollout worker a: the forward pass failed"));
}

TEST_F(WorkerPoolTasksTest, AnErrorThatNoRetryMendsFailsItsTaskAlone) {
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
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal) << "it is not our data";
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("rollout worker a refused task 1: the prompt is empty"));
  pool_->Submit({2});
  EXPECT_THAT(Collect(1), ElementsAre(2));
  EXPECT_EQ(a_.connects(), 1);
}

TEST_F(WorkerPoolTasksTest, AWorkerThatRefusesATaskMayFinishWhatItHas) {
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

TEST_F(WorkerPoolTasksTest, WhatAWorkerRefusedIsLeftToOthers) {
  const auto refuse = [](const FakeTask& task, int64_t) {
    return std::vector<FakeAnswer>{{task.id, absl::DataLossError("no number")}};
  };
  a_.SetHandler(refuse);
  b_.SetHandler(NoAnswer);
  SetEndpoints(std::vector<std::string>{"a", "b"});
  Start();
  ASSERT_TRUE(Eventually([&] {
    return HasWorkerIn("a", WorkerStage::kReady) &&
           HasWorkerIn("b", WorkerStage::kReady);
  }));
  for (uint64_t id = 1; id <= 4; ++id) pool_->Submit({id});
  // While worker b is busy, worker a reconnects; it would do so many times if
  // it got tasks.
  ASSERT_TRUE(Eventually([&] {
    return b_.seen().size() == 2 && a_.connects() >= 2 &&
           HasWorkerIn("a", WorkerStage::kReady);
  }));
  b_.SetHandler({});
  for (const uint64_t id : b_.seen()) b_.Push(b_.Result(id, 1));
  EXPECT_THAT(Collect(4), UnorderedElementsAre(1, 2, 3, 4));
  std::vector<uint64_t> refused = a_.seen();
  std::ranges::sort(refused);
  EXPECT_EQ(std::ranges::adjacent_find(refused), refused.end())
      << "one of them twice";

  // If all workers refuse a task, it is tried until its attempts are used up.
  b_.SetHandler(refuse);
  pool_->Submit({5});
  const absl::Status status = pool_->Next().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("10 attempts"));
}

TEST_F(WorkerPoolTasksTest, ASecondAnswerToATaskIsADuplicate) {
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

TEST_F(WorkerPoolTasksTest, ARefusalOfAnAnsweredTaskFailsNothing) {
  a_.SetHandler([&](const FakeTask& task, int64_t version) {
    return std::vector<FakeAnswer>{
        a_.Result(task.id, version),
        {task.id, absl::InvalidArgumentError("the prompt is empty")}};
  });
  Start();
  pool_->Submit({1});
  EXPECT_THAT(Collect(1), ElementsAre(1));
  ASSERT_TRUE(Eventually([&] { return OutcomeCount("duplicate") == 1; }));
  EXPECT_EQ(OutcomeCount("failed"), 0);
}

TEST_F(WorkerPoolTasksTest, AStaleAnswerIsDroppedAndItsTaskDoneAgain) {
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

TEST_F(WorkerPoolTasksTest, ANewUpdateRecallsWhatIsInFlight) {
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

}  // namespace
}  // namespace dapd
