// Tests a pool while somebody sets the machine's clock.

#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/rpc/pool/worker_pool_fixture.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/machine_clock.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

class WorkerPoolClockTest : public WorkerPoolFixture {
 protected:
  WorkerPoolClockTest() {
    options_.observer.on_load = [this](const PoolLoad&) { ++looks_; };
  }
  ~WorkerPoolClockTest() override {
    pool_ = nullptr;  // the pool's observer uses looks_
  }

  MachineClock clock_;
  std::atomic<int> looks_ = 0;  // how often the pool looked at its deadlines
};

TEST_F(WorkerPoolClockTest, AClockThatIsSetForwardTimesNothingOut) {
  a_.SetHandler(NoAnswer);
  Start();
  pool_->Submit({1});
  ASSERT_TRUE(Eventually([&] { return a_.seen().size() == 1; }));
  clock_.Set(absl::Hours(1));
  const int before = looks_;
  ASSERT_TRUE(Eventually([&] { return looks_ >= before + 3; }));
  EXPECT_EQ(OutcomeCount("timeout"), 0);
  EXPECT_TRUE(HasWorkerIn("a", WorkerStage::kReady));
  a_.Push(a_.Result(1, 1));
  EXPECT_THAT(Collect(1), ElementsAre(1));
}

TEST_F(WorkerPoolClockTest, AClockThatIsSetBackHoldsNothingUp) {
  Start();
  ASSERT_TRUE(
      Eventually([&] { return HasWorkerIn("a", WorkerStage::kReady); }));
  clock_.Set(-absl::Hours(1));
  // The next look-up of addresses and the next try of a lost worker are not
  // late.
  SetEndpoints(std::vector<std::string>{"a", "b"});
  EXPECT_TRUE(
      Eventually([&] { return HasWorkerIn("b", WorkerStage::kReady); }));
  const int64_t connects = a_.connects();
  a_.Kill(absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return a_.connects() > connects; }));
}

}  // namespace
}  // namespace dapd
