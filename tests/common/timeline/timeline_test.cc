#include "common/timeline/timeline.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/timeline_slices.h"

namespace dapd {
namespace {

constexpr absl::Time kOrigin = absl::FromUnixSeconds(1'800'000'000);

Slice SliceAt(int64_t millisecond, const std::string& name = "slice") {
  return {.name = name,
          .begin = kOrigin + absl::Milliseconds(millisecond),
          .end = kOrigin + absl::Milliseconds(millisecond + 1)};
}

class TimelineTest : public ::testing::Test {
 protected:
  bool IsWritten() const { return FileExists(path_); }
  nlohmann::json Trace() const {
    return nlohmann::json::parse(ReadFile(path_, 1 << 26).value());
  }
  std::vector<nlohmann::json> Slices() const { return SlicesOfTimeline(path_); }

  const std::string path_ = TempPath("timeline_test");
};

TEST_F(TimelineTest, TheFirstStepsAreRecordedAndThenWritten) {
  Timeline timeline({.path = path_, .steps = 2});
  const int worker = timeline.AddPeer("rollout a");
  timeline.Add(worker, "slot 0", SliceAt(0, "too early"));
  EXPECT_FALSE(timeline.recording());
  EXPECT_TRUE(timeline.wanted());
  for (int64_t step = 7; step <= 9; ++step) {
    timeline.BeginStep(step);
    timeline.Add(worker, "slot 0", SliceAt(10 * step, "sampling"));
    timeline.AddOwn(kPhasesTrack, SliceAt(10 * step, "rollout"));
    EXPECT_EQ(IsWritten(), step > 8);
    timeline.EndStep();
  }
  EXPECT_FALSE(timeline.wanted());
  const auto slices = Slices();
  ASSERT_EQ(slices.size(), 4U);
  EXPECT_EQ(slices[0].at("name"), "rollout");
  EXPECT_EQ(slices[0].at("args"), nlohmann::json::parse(R"({"step": 7})"));
  EXPECT_EQ(slices[1].at("args"), nlohmann::json::parse(R"({"step": 8})"));
  EXPECT_EQ(slices[2].at("name"), "sampling");
  EXPECT_EQ(Trace().at("otherData").at("steps"), "2");
}

TEST_F(TimelineTest, ARunThatEndsBeforeLeavesWhatThereIs) {
  {
    Timeline timeline({.path = path_, .steps = 5});
    timeline.BeginStep(1);
    timeline.AddOwn(kPhasesTrack, SliceAt(0));
    timeline.EndStep();
  }
  EXPECT_EQ(Slices().size(), 1U);
}

TEST_F(TimelineTest, ARunWithoutAStepLeavesNothing) {
  { const Timeline timeline({.path = path_, .steps = 5}); }
  EXPECT_FALSE(IsWritten());
}

TEST_F(TimelineTest, ADiskThatRefusesIsAWarning) {
  Timeline timeline({.path = path_ + "/no/folder.json", .steps = 1});
  timeline.BeginStep(1);
  testing::internal::CaptureStderr();
  timeline.EndStep();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("the timeline is lost"));
}

TEST_F(TimelineTest, APeersTimesAreReadByItsClock) {
  Timeline timeline({.path = path_, .steps = 1});
  const int worker = timeline.AddPeer("teacher b");
  EXPECT_EQ(timeline.AddPeer("teacher b"), worker);
  EXPECT_NE(timeline.AddPeer("teacher c"), worker);
  timeline.AddReading(worker,
                      {.asked = kOrigin,
                       .told = kOrigin + absl::Seconds(100),
                       .heard = kOrigin + absl::Milliseconds(4)});
  timeline.BeginStep(1);
  timeline.Add(worker, kComputeTrack, SliceAt(100'000));
  timeline.EndStep();
  ASSERT_EQ(Slices().size(), 1U);
  EXPECT_EQ(Slices()[0].at("ts"), absl::ToUnixMicros(kOrigin) + 2000);
  EXPECT_EQ(Trace().at("otherData").at("clock_error_ms"), "2.000");
}

TEST_F(TimelineTest, MemoryIsBounded) {
  Timeline timeline({.path = path_, .steps = 1, .max_slices = 10});
  timeline.BeginStep(1);
  for (int i = 0; i < 25; ++i)
    timeline.Add(Timeline::kOwn, "track", SliceAt(2 * i));
  timeline.EndStep();
  EXPECT_EQ(Slices().size(), 10U);
  EXPECT_EQ(Trace().at("otherData").at("slices_left_out"), "15");
}

TEST_F(TimelineTest, WhatIsNoMeasurementIsDropped) {
  Timeline timeline({.path = path_, .steps = 1});
  timeline.BeginStep(1);
  Slice backwards = SliceAt(5);
  backwards.end = kOrigin;
  timeline.Add(Timeline::kOwn, "track", backwards);
  timeline.Add(Timeline::kOwn,
               "track",
               {.name = "endless",
                .begin = absl::FromUnixNanos(0),
                .end = absl::FromUnixNanos(INT64_MAX)});
  timeline.EndStep();
  EXPECT_TRUE(Slices().empty());
}

TEST_F(TimelineTest, WaitsThatFollowEachOtherAreOne) {
  Timeline timeline({.path = path_, .steps = 1});
  timeline.BeginStep(1);
  for (const int64_t begin : {0, 1, 2, 10}) {
    timeline.AddOwn(kComputeTrack, SliceAt(begin, "wait"), /*joins=*/true);
  }
  timeline.AddOwn(kComputeTrack, SliceAt(11, "forward"), /*joins=*/true);
  timeline.AddOwn(kComputeTrack, SliceAt(12, "forward"));
  timeline.EndStep();
  std::vector<int64_t> durations;
  for (const auto& slice : Slices())
    durations.push_back(slice.at("dur").get<int64_t>());
  EXPECT_THAT(durations, testing::ElementsAre(3000, 1000, 1000, 1000));
}

TEST_F(TimelineTest, TracksAreInTheOrderOfTheirNumbers) {
  Timeline timeline({.path = path_, .steps = 1, .rank = 2});
  timeline.BeginStep(1);
  for (const char* track : {"slot 10", "slot 9", "slot 0"}) {
    timeline.Add(Timeline::kOwn, track, SliceAt(0));
  }
  timeline.EndStep();
  std::vector<std::string> names;
  const nlohmann::json trace = Trace();
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 20'001);
    if (event.at("name") == "thread_name") {
      names.push_back(event.at("args").at("name").get<std::string>());
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("slot 0", "slot 9", "slot 10"));
}

TEST_F(TimelineTest, WithoutATimelineASliceIsNothing) {
  { const ScopedSlice slice(nullptr, kComputeTrack, "forward"); }
  Timeline timeline({.path = path_, .steps = 1});
  timeline.BeginStep(1);
  {
    ScopedSlice slice(&timeline, kComputeTrack, "forward");
    slice.Drop();
  }
  { const ScopedSlice slice(&timeline, kComputeTrack, "backward"); }
  timeline.EndStep();
  ASSERT_EQ(Slices().size(), 1U);
  EXPECT_EQ(Slices()[0].at("name"), "backward");
}

TEST_F(TimelineTest, ThreadsMayAddWhileItIsWritten) {
  Timeline timeline({.path = path_, .steps = 1});
  const int worker = timeline.AddPeer("rollout a");
  timeline.BeginStep(1);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 1000; ++j) {
        timeline.Add(worker, "slot " + std::to_string(i), SliceAt(2 * j));
        timeline.AddReading(worker, {kOrigin, kOrigin, kOrigin});
      }
    });
  }
  timeline.EndStep();
  threads.clear();
  EXPECT_LE(Slices().size(), 4000U);
}

}  // namespace
}  // namespace dapd
