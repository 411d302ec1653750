// Tests what teachers compute ahead of a client's tasks.

#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/timeline/timeline.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/timeline_slices.h"
#include "tests/services/trainer/workers/teacher_client_fixture.h"

namespace dapd {
namespace {

class TeacherPrefixesTest : public TeacherClientFixture {
 protected:
  // Returns the first `known` tokens of MakeTask(1, 40).
  static ScoreTask MakePrefix(size_t known) {
    ScoreTask task = MakeTask(1, 40);
    for (auto& [name, view] : task.views) view.input_ids.resize(known);
    return task;
  }
};

TEST_F(TeacherPrefixesTest, APrefixIsComputedAheadOfItsTask) {
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(10));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 8; }));
  client_->SubmitPrefix(MakePrefix(30));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 28; }));
  client_->Submit(MakeTask(1, 40));
  const auto result = client_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->ahead_seconds, 0);
  EXPECT_EQ(result->computed_tokens, 2 * 41);
  EXPECT_EQ(control_.base_ahead, 2 * 28);
}

TEST_F(TeacherPrefixesTest, WhatATeacherDidIsInTheTimeline) {
  const std::string path = TempPath("timeline.json");
  Timeline timeline({.path = path, .steps = 1});
  timeline.BeginStep(1);
  options_.timeline = &timeline;
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(30));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 28; }));
  client_->Submit(MakeTask(1, 40));
  const auto result = client_->Next();
  client_.reset();  // the timeline must outlive it
  ASSERT_TRUE(result.ok()) << result.status();
  timeline.EndStep();
  std::map<std::string, nlohmann::json> slices;  // the last slice of each name
  for (const nlohmann::json& slice : SlicesOfTimeline(path)) {
    slices[slice.at("name").get<std::string>()] = slice;
  }
  for (const char* name :
       {"push", "prefix news", "prefix", "score", "payload"}) {
    EXPECT_TRUE(slices.contains(name)) << name;
  }
  EXPECT_EQ(slices["payload"]["args"]["bytes"],
            static_cast<int64_t>(result->payload_bytes));
  EXPECT_EQ(slices["score"]["args"]["computed_tokens"],
            result->computed_tokens);
  EXPECT_LE(slices["prefix"]["ts"].get<int64_t>() +
                slices["prefix"]["dur"].get<int64_t>(),
            slices["score"]["ts"].get<int64_t>());
}

TEST_F(TeacherPrefixesTest, ATeacherThatComesBackIsToldFromTheStart) {
  auto server = std::make_unique<MiniServer>(&control_, "127.0.0.1:0");
  const std::string address = server->address();
  Start(address);
  client_->SubmitPrefix(MakePrefix(30));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 28; }));
  server.reset();
  control_.base_ahead = 0;
  MiniServer again(&control_, address);
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 28; }));
  client_->SubmitPrefix(MakePrefix(34));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 2 * 32; }));
}

TEST_F(TeacherPrefixesTest, AWithdrawnTaskIsForgotten) {
  control_.chunks_left = 1;
  MiniServer server(&control_, "127.0.0.1:0");
  Start(server.address());
  client_->SubmitPrefix(MakePrefix(30));
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 4; }));
  ScoreTask other = MakePrefix(30);
  other.id = 2;
  client_->SubmitPrefix(other);
  control_.chunks_left = 14;
  client_->WithdrawPrefix(1);
  ASSERT_TRUE(Eventually([&] { return control_.base_ahead >= 4 + 2 * 28; }));
}

}  // namespace
}  // namespace dapd
