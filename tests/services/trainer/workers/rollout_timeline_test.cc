// Tests what a client writes to the timeline about its rollout workers.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/timeline/timeline.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/timeline_slices.h"
#include "tests/services/trainer/workers/rollout_client_fixture.h"

namespace dapd {
namespace {

class RolloutTimelineTest : public RolloutClientFixture {
 protected:
  ~RolloutTimelineTest() override { client_.reset(); }  // before timeline_

  void StartTimeline() {
    timeline_ = std::make_unique<Timeline>(
        Timeline::Options{.path = path_, .steps = 1});
    timeline_->BeginStep(1);
    options_.timeline = timeline_.get();
  }
  // Writes the timeline and returns its slices.
  std::vector<nlohmann::json> EndTimeline() {
    timeline_->EndStep();
    return SlicesOfTimeline(path_);
  }

 private:
  const std::string path_ = TempPath("timeline.json");
  std::unique_ptr<Timeline> timeline_;
};

TEST_F(RolloutTimelineTest, EveryAnswerIsInTheTimeline) {
  StartTimeline();
  MiniServer server(&control_, "127.0.0.1:0");
  Start({server.address()});
  for (uint64_t id = 0; id < 12; ++id) {
    RolloutTask task = MakeTask(id);
    task.request.key = {.step = 4, .example = static_cast<uint32_t>(id)};
    client_->Submit(std::move(task));
  }
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(client_->Next().ok());
  std::map<std::string, std::set<int64_t>> examples;  // by slice
  for (const nlohmann::json& slice : EndTimeline()) {
    if (slice.at("name") == "push") continue;
    examples[slice.at("name").get<std::string>()].insert(
        slice.at("args").at("example").get<int64_t>());
    EXPECT_EQ(slice.at("args").at("step"), 5);
    EXPECT_EQ(slice.at("args").at("tokens"), 3);
  }
  EXPECT_EQ(examples["prefill"].size(), 12U);
  EXPECT_EQ(examples["sampling"].size(), 12U);
}

TEST_F(RolloutTimelineTest, AWorkersTimesAreReadByItsClock) {
  static constexpr absl::Duration kAhead = absl::Hours(5);
  const auto now = [] { return absl::ToUnixNanos(absl::Now() + kAhead); };
  StartTimeline();
  ScriptedServer server([&](ScriptedServer::Stream* stream) {
    v1::GenerateRequest request;
    if (!stream->Read(&request)) return;
    AnswerWithOneToken(request, stream, [&](v1::GenerationFinished* finished) {
      finished->mutable_times()->set_started(now());
      finished->mutable_times()->set_first_token(now());
      finished->mutable_times()->set_ended(now());
    });
    stream->Read(&request);
  });
  server.SetClockAhead(kAhead);
  const absl::Time begin = absl::Now();
  Start({server.address()});
  client_->Submit(MakeTask(1));
  ASSERT_TRUE(client_->Next().ok());
  const absl::Time end = absl::Now();
  int sampled = 0;
  for (const nlohmann::json& slice : EndTimeline()) {
    sampled += slice.at("name") == "sampling";
    const absl::Time at = absl::FromUnixMicros(slice.at("ts").get<int64_t>());
    EXPECT_GE(at, begin - absl::Seconds(1));
    EXPECT_LE(at, end + absl::Seconds(1));
  }
  EXPECT_EQ(sampled, 1);
}

}  // namespace
}  // namespace dapd
