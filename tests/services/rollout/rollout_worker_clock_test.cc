// Tests what a rollout worker measures while somebody sets the machine's clock.

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "tests/fakes/machine_clock.h"
#include "tests/services/rollout/rollout_worker_fixture.h"

namespace dapd {
namespace {

constexpr double kMinute = 60.0;

// Sets the clock in the middle of each step.
class ClockSettingSampler : public FakeSampler {
 public:
  ClockSettingSampler(FakeSamplerControl* control,
                      MachineClock* clock,
                      absl::Duration by)
      : FakeSampler(control), clock_(*clock), by_(by) {}

  absl::StatusOr<std::vector<SampledToken>> Step() override {
    clock_.Set(by_);
    return FakeSampler::Step();
  }

 private:
  MachineClock& clock_;
  const absl::Duration by_;
};

class RolloutWorkerClockTest
    : public RolloutWorkerTest,
      public ::testing::WithParamInterface<absl::Duration> {
 protected:
  MachineClock clock_;
};

TEST_P(RolloutWorkerClockTest, AnAnswerTakesAsLongAsItTook) {
  std::vector<double> seconds;  // read once the worker has ended
  worker_ = std::make_unique<RolloutWorker>(
      std::make_unique<ClockSettingSampler>(&control_, &clock_, GetParam()),
      RolloutWorker::Options{
          .observer = {
              .on_step = [&](int64_t /*tokens*/,
                             double taken) { seconds.push_back(taken); },
              .on_request =
                  [&](const RolloutReport& report) {
                    seconds.push_back(report.seconds_to_first_token);
                    seconds.push_back(report.seconds);
                  }}});
  ASSERT_TRUE(Load(1, "one").ok());
  Submit(5, 2);
  EXPECT_EQ(Wait(5).ids.size(), 2U);
  worker_.reset();
  EXPECT_EQ(seconds.size(), 4U);  // of two steps and one answer
  for (const double taken : seconds) {
    EXPECT_GT(taken, 0.0);
    EXPECT_LT(taken, kMinute);
  }
}

INSTANTIATE_TEST_SUITE_P(ForwardAndBack,
                         RolloutWorkerClockTest,
                         ::testing::Values(absl::Hours(1), -absl::Hours(1)));

}  // namespace
}  // namespace dapd
