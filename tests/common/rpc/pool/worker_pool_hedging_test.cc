// Tests tasks that two workers have, and the later of their answers.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/common/rpc/pool/worker_pool_fixture.h"
#include "tests/fakes/eventually.h"

namespace dapd {
namespace {

// Worker a has tasks 9 and 10 and does not answer them; b has answered them. So
// a is as busy as it may be, with tasks that nobody needs.
class HedgedWorkerPoolTest : public WorkerPoolFixture {
 protected:
  void StartWithDuplicates() {
    options_.hedge.minimum = absl::Milliseconds(50);
    options_.hedge.factor = 0.0;
    a_.SetHandler([](const FakeTask& task, int64_t) {
      return task.id >= 9
                 ? std::vector<FakeAnswer>{}
                 : std::vector<FakeAnswer>{{task.id, FakeResult{task.id, "a"}}};
    });
    Start();
    for (uint64_t id = 1; id <= 4; ++id) pool_->Submit({id});
    Collect(4);
    pool_->Submit({9});
    pool_->Submit({10});
    ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 6; }));
    SetEndpoints(std::vector<std::string>{"a", "b"});
    for (int i = 0; i < 2; ++i) {
      const absl::StatusOr<FakeResult> result = pool_->Next();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->worker, "b");
    }
    EXPECT_EQ(OutcomeCount("hedged"), 2);
  }
};

TEST_F(HedgedWorkerPoolTest, ATaskThatTakesLongIsAlsoGivenToAnIdleWorker) {
  ASSERT_NO_FATAL_FAILURE(StartWithDuplicates());
  EXPECT_TRUE(HasWorkerIn("a", WorkerStage::kReady)) << "slow is not lost";
}

TEST_F(HedgedWorkerPoolTest, ADuplicateIsNotWaitedForUnderANewUpdate) {
  ASSERT_NO_FATAL_FAILURE(StartWithDuplicates());
  SetVersion(2);
  ASSERT_TRUE(Eventually([&] { return a_.loaded_versions().back() == 2; }));
  EXPECT_EQ(a_.half_closes(), 0);
}

TEST_F(HedgedWorkerPoolTest, ADuplicateIsNotWaitedForWhenItsWorkerLeaves) {
  ASSERT_NO_FATAL_FAILURE(StartWithDuplicates());
  SetEndpoints(std::vector<std::string>{"b"});
  ASSERT_TRUE(Eventually([&] { return pool_->Workers().size() == 1; }));
  EXPECT_EQ(a_.half_closes(), 0);
}

TEST_F(HedgedWorkerPoolTest, ADuplicateCountsAmongWhatAWorkerTakesAtATime) {
  ASSERT_NO_FATAL_FAILURE(StartWithDuplicates());
  b_.SetHandler(NoAnswer);
  for (uint64_t id = 11; id <= 14; ++id) pool_->Submit({id});
  ASSERT_TRUE(Eventually([&] { return b_.seen().size() == 4; }));
  a_.Push(a_.Result(9, 1));
  ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 7; }));
  EXPECT_EQ(OutcomeCount("duplicate"), 1);
  for (const WorkerState& worker : pool_->Workers()) {
    EXPECT_EQ(worker.in_flight, worker.address == "a" ? 1 : 2);
  }
}

TEST_F(HedgedWorkerPoolTest, AWorkerThatNeverEndsADuplicateIsLost) {
  options_.task_timeout = absl::Seconds(1);
  ASSERT_NO_FATAL_FAILURE(StartWithDuplicates());
  EXPECT_TRUE(Eventually([&] { return a_.connects() == 2; }));
}

}  // namespace
}  // namespace dapd
