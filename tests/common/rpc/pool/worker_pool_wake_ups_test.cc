// Tests how many threads an event of a pool wakes.

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/common/rpc/pool/worker_pool_fixture.h"
#include "tests/fakes/eventually.h"

namespace dapd {
namespace {

class WorkerPoolWakeUpsTest : public WorkerPoolFixture {
 protected:
  static constexpr int kWorkers = 64;

  ~WorkerPoolWakeUpsTest() override {
    pool_ = nullptr;  // the pool uses the workers
  }

  void StartMany() {
    std::vector<std::string> endpoints;
    for (int i = 0; i < kWorkers; ++i) {
      endpoints.push_back(absl::StrCat("worker-", i));
      many_.emplace_back(endpoints.back());
      workers_[endpoints.back()] = &many_.back();
    }
    SetEndpoints(endpoints);
    options_.resolve_interval = absl::Minutes(1);
    Start();
    ASSERT_TRUE(Eventually([&] {
      const auto workers = pool_->Workers();
      return std::ranges::count(
                 workers, WorkerStage::kReady, &WorkerState::stage) == kWorkers;
    }));
  }

  // Returns how often threads of this process have begun to wait so far. Every
  // wake-up of a thread that finds nothing to do adds 1.
  static int64_t Waits() {
    rusage usage = {};
    EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_nvcsw;
  }

  std::deque<FakeWorker> many_;
};

// Runs one task at a time, so that every woken thread waits again before the
// next event. A task is three events: it is given to a worker, it is answered,
// and its answer is handed out.
TEST_F(WorkerPoolWakeUpsTest, ATaskWakesFewThreadsHoweverManyWorkersThereAre) {
  constexpr int kTasks = 1000;
  ASSERT_NO_FATAL_FAILURE(StartMany());
  const int64_t before = Waits();
  for (uint64_t id = 0; id < kTasks; ++id) {
    pool_->Submit({id});
    ASSERT_EQ(Collect(1).size(), 1U);
  }
  const int64_t waits = Waits() - before;
  RecordProperty("waits", absl::StrCat(waits));
  EXPECT_LT(waits, 20 * kTasks) << "a task wakes more than its own threads";
}

}  // namespace
}  // namespace dapd
