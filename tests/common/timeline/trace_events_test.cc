#include "common/timeline/trace_events.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/utf8.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

constexpr absl::Time kTraced = absl::FromUnixSeconds(1'800'000'000);

class TraceEventsTest : public ::testing::Test {
 protected:
  nlohmann::json Written(const std::vector<TraceProcess>& processes) {
    const absl::Status status = WriteTrace(path_, processes, {{"steps", "2"}});
    EXPECT_TRUE(status.ok()) << status;
    const std::string text = ReadFile(path_, 1 << 20).value();
    EXPECT_TRUE(IsUtf8(text));
    return nlohmann::json::parse(text);
  }

  const std::string path_ = TempPath("trace_events_test");
};

TEST_F(TraceEventsTest, ProcessesAndTracksAreNamedAndSlicesComplete) {
  const nlohmann::json trace = Written(
      {{.pid = 3,
        .name = "rollout 127.0.0.1:7001",
        .label = "clock within 0.1 ms",
        .tracks = {{.name = "slot 0",
                    .slices = {{.name = "prefill",
                                .begin = kTraced + absl::Nanoseconds(1999),
                                .end = kTraced + absl::Nanoseconds(7001),
                                .facts = {{"step", 4}}}}}}}});
  EXPECT_EQ(trace.at("otherData"), nlohmann::json::parse(R"({"steps": "2"})"));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  const nlohmann::json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6U);
  for (const nlohmann::json& event : events) EXPECT_EQ(event.at("pid"), 3);
  EXPECT_EQ(events[0].at("name"), "process_name");
  EXPECT_EQ(events[0].at("ph"), "M");
  EXPECT_EQ(events[0].at("args").at("name"), "rollout 127.0.0.1:7001");
  EXPECT_EQ(events[2].at("args").at("labels"), "clock within 0.1 ms");
  EXPECT_EQ(events[3].at("name"), "thread_name");
  EXPECT_EQ(events[3].at("args").at("name"), "slot 0");
  EXPECT_EQ(events[5], nlohmann::json::parse(R"({
    "name": "prefill", "ph": "X", "ts": 1800000000000001, "dur": 6,
    "pid": 3, "tid": 1, "args": {"step": 4}})"));
}

TEST_F(TraceEventsTest, SlicesThatTouchDoNotOverlapByRounding) {
  TraceTrack track = {.name = "t"};
  absl::Time time = kTraced;
  for (int i = 1; i < 500; ++i) {
    const absl::Time end = time + absl::Nanoseconds(37 * i);
    track.slices.push_back({.name = "s", .begin = time, .end = end});
    time = end;
  }
  const nlohmann::json trace =
      Written({{.pid = 1, .name = "p", .tracks = {track}}});
  int64_t last = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<int64_t>(), last);
    last = event.at("ts").get<int64_t>() + event.at("dur").get<int64_t>();
  }
}

TEST_F(TraceEventsTest, ASliceComesBehindTheOneItLiesIn) {
  const Slice inner = {
      .name = "inner", .begin = kTraced, .end = kTraced + absl::Seconds(1)};
  const Slice outer = {
      .name = "outer", .begin = kTraced, .end = kTraced + absl::Seconds(2)};
  const nlohmann::json events =
      Written({{.pid = 1,
                .name = "p",
                .tracks = {{.name = "t", .slices = {inner, outer}}}}})
          .at("traceEvents");
  EXPECT_EQ(events[events.size() - 2].at("name"), "outer");
  EXPECT_EQ(events.back().at("name"), "inner");
}

TEST_F(TraceEventsTest, NamesMayHoldAnything) {
  const nlohmann::json trace =
      Written({{.pid = 1, .name = "a\"\n\xff\x1b", .tracks = {}}});
  EXPECT_EQ(trace.at("traceEvents")[0].at("args").at("name"),
            "a\"\n\xef\xbf\xbd\x1b");
}

TEST_F(TraceEventsTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(WriteTrace(path_ + "/no/folder.json", {}, {}).ok());
}

}  // namespace
}  // namespace dapd
