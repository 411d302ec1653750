// Tests what a teacher measures while somebody sets the machine's clock.

#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "services/teacher/prefix_desk.h"
#include "services/teacher/teacher_worker.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_scorer.h"
#include "tests/fakes/machine_clock.h"

namespace dapd {
namespace {

constexpr double kMinute = 60.0;

// Sets the clock in the middle of each computation.
class ClockSettingScorer : public FakeScorer {
 public:
  ClockSettingScorer(FakeScorerControl* control,
                     MachineClock* clock,
                     absl::Duration by)
      : FakeScorer(control), clock_(*clock), by_(by) {}

  absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                  const ViewSink& sink) override {
    clock_.Set(by_);
    return FakeScorer::Score(input, sink);
  }

  absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> sequences) override {
    clock_.Set(by_);
    return FakeScorer::Advance(sequences);
  }

 private:
  MachineClock& clock_;
  const absl::Duration by_;
};

class TeacherClockTest : public ::testing::TestWithParam<absl::Duration> {
 protected:
  static void ExpectShort(double seconds) {
    EXPECT_GE(seconds, 0.0);
    EXPECT_LT(seconds, kMinute);
  }
  static void ExpectShort(const TimeSpan& span) {
    ExpectShort(absl::ToDoubleSeconds(span.end - span.begin));
  }

  static PrefixUpdate EightTokens() {
    return {.request_id = 1,
            .views = {{ViewName::kNoneRollout, 0, std::vector<int32_t>(8, 7)}}};
  }

  MachineClock clock_;
  FakeScorerControl control_;
};

TEST_P(TeacherClockTest, APassAheadTakesAsLongAsItTook) {
  ClockSettingScorer scorer(&control_, &clock_, GetParam());
  PrefixDesk desk;
  desk.Update(this, EightTokens());
  while (desk.has_work()) ASSERT_TRUE(desk.Advance(scorer).ok());
  const AheadWork work = desk.Close(this, 1);
  ExpectShort(work.seconds);
  EXPECT_FALSE(work.spans.empty());
  for (const TimeSpan& span : work.spans) ExpectShort(span);
}

TEST_P(TeacherClockTest, ARequestTakesAsLongAsItTook) {
  auto outbox = std::make_shared<TeacherOutbox>(8);
  std::vector<double> seconds;  // read once the worker has ended
  const auto note = [&](int64_t /*tokens*/, double taken) {
    seconds.push_back(taken);
  };
  auto worker = std::make_unique<TeacherWorker>(
      std::make_unique<ClockSettingScorer>(&control_, &clock_, GetParam()),
      TeacherObserver{.on_scored = note, .on_ahead = note});
  AdapterUpload base;
  base.set = WeightSet::kBase;
  base.is_base = true;
  base.probe_ids = {1, 2};
  ASSERT_TRUE(worker->Load(std::move(base), [] { return false; }).ok());
  worker->SubmitPrefix(EightTokens(), outbox);
  EXPECT_TRUE(Eventually([&] { return control_.base_ahead == 8; }));
  TeacherRequest request;
  request.request_id = 1;
  request.input.views = {{ViewName::kNoneRollout, {{5, 6, 7}, 1, 2}}};
  worker->Submit(std::move(request), outbox);
  ASSERT_TRUE(outbox->PopFor(absl::Seconds(20)).has_value());  // the scores
  const auto end = outbox->PopFor(absl::Seconds(20));
  ASSERT_TRUE(end.has_value());
  ASSERT_TRUE(std::holds_alternative<ScoreFinished>(end->content));
  const auto& finished = std::get<ScoreFinished>(end->content);
  ExpectShort(finished.compute_seconds);
  ExpectShort(finished.ahead_seconds);
  ExpectShort(finished.scored);
  worker.reset();
  EXPECT_EQ(seconds.size(), 3U);  // two passes ahead and the request
  for (const double taken : seconds) ExpectShort(taken);
}

INSTANTIATE_TEST_SUITE_P(ForwardAndBack,
                         TeacherClockTest,
                         ::testing::Values(absl::Hours(1), -absl::Hours(1)));

}  // namespace
}  // namespace dapd
