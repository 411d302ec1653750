#include "services/teacher/score_request.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkerDescription Limits() {
  WorkerDescription limits;
  limits.vocab_size = 100;
  limits.max_positions = 8;
  return limits;
}

v1::ScoreRequest MakeRequest() {
  v1::ScoreRequest request;
  request.set_request_id(9);
  request.set_weights(v1::TEACHER_WEIGHTS_EMA);
  request.set_policy_version(3);
  request.set_adapter_digest("digest");
  request.set_payload(v1::PAYLOAD_TOP_K);
  request.set_top_k(5);
  request.set_temperature(1.1);
  for (const char* name : {"none_rollout", "self_rollout"}) {
    v1::ScoreView& view = *request.add_views();
    view.set_name(name);
    for (int id = 1; id <= 8; ++id) view.add_input_ids(id);
    view.set_scored_from(3);
    view.set_scored_count(5);
  }
  return request;
}

TEST(ScoreRequestTest, AllFieldsArrive) {
  const auto request = ParseScoreRequest(MakeRequest(), Limits());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request_id, 9U);
  EXPECT_EQ(request->policy_version, 3);
  EXPECT_EQ(request->adapter_digest, "digest");
  EXPECT_EQ(request->input.weights, WeightSet::kEma);
  EXPECT_EQ(request->input.payload, Payload::kTopK);
  EXPECT_EQ(request->input.top_k, 5);
  EXPECT_EQ(request->input.temperature, 1.1);
  ASSERT_EQ(request->input.views.size(), 2U);
  const View& view = request->input.views.at(ViewName::kSelfRollout);
  EXPECT_THAT(view.input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(view.scored_from, 3);
  EXPECT_EQ(view.scored_count, 5);
}

TEST(ScoreRequestTest, WhatIsOutOfRangeIsRefusedByName) {
  struct Case {
    std::string named;
    std::function<void(v1::ScoreRequest&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string many = absl::StrCat(kNumViews + 1, " views");
  const std::vector<Case> cases = {
      {"0 views", [](auto& r) { r.clear_views(); }},
      {many,
       [](auto& r) {
         while (r.views_size() <= kNumViews) r.add_views();
       }},
      {"'rollout' is not a view",
       [](auto& r) { r.mutable_views(1)->set_name("rollout"); }},
      {"view 'none_rollout' occurs twice",
       [](auto& r) { r.mutable_views(1)->set_name("none_rollout"); }},
      {"view 'self_rollout': 9 tokens do not fit the model's 8",
       [](auto& r) { r.mutable_views(1)->add_input_ids(1); }},
      {"view 'self_rollout': input_ids[7] is 100",
       [](auto& r) { r.mutable_views(1)->set_input_ids(7, 100); }},
      {"view 'self_rollout': input_ids[0] is -1",
       [](auto& r) { r.mutable_views(1)->set_input_ids(0, -1); }},
      {"view 'self_rollout': scored range [0, 5)",
       [](auto& r) { r.mutable_views(1)->set_scored_from(0); }},
      {"view 'self_rollout': scored range [3, 3)",
       [](auto& r) { r.mutable_views(1)->set_scored_count(0); }},
      {"view 'self_rollout': scored range [4, 9)",
       [](auto& r) { r.mutable_views(1)->set_scored_from(4); }},
      {"scored range",
       [](auto& r) {
         r.mutable_views(1)->set_scored_count(
             std::numeric_limits<uint32_t>::max());
       }},
      {"weights 0",
       [](auto& r) { r.set_weights(v1::TEACHER_WEIGHTS_UNSPECIFIED); }},
      {"weights 5",
       [](auto& r) { r.set_weights(static_cast<v1::TeacherWeights>(5)); }},
      {"payload 0", [](auto& r) { r.set_payload(v1::PAYLOAD_UNSPECIFIED); }},
      {"top_k is 0", [](auto& r) { r.set_top_k(0); }},
      {"top_k is 101", [](auto& r) { r.set_top_k(101); }},
      {"temperature is 0", [](auto& r) { r.set_temperature(0); }},
      {"temperature is nan", [nan](auto& r) { r.set_temperature(nan); }}};
  for (const Case& c : cases) {
    v1::ScoreRequest message = MakeRequest();
    c.spoil(message);
    const auto request = ParseScoreRequest(message, Limits());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument)
        << c.named;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(c.named));
  }
}

v1::ScoreRequest MakeUpdate() {
  v1::ScoreRequest message;
  message.set_request_id(9);
  message.set_weights(v1::TEACHER_WEIGHTS_LIVE);
  message.set_policy_version(3);
  message.set_adapter_digest("digest");
  v1::ViewPrefix& view = *message.mutable_prefix()->add_views();
  view.set_name("none_rollout");
  view.set_first_index(5);
  for (const int id : {1, 2, 3}) view.add_input_ids(id);
  return message;
}

TEST(ScoreRequestTest, AnUpdateArrives) {
  const auto update = ParsePrefixUpdate(MakeUpdate(), Limits());
  ASSERT_TRUE(update.ok()) << update.status();
  EXPECT_EQ(update->request_id, 9U);
  EXPECT_EQ(update->weights, WeightSet::kLive);
  EXPECT_EQ(update->policy_version, 3);
  EXPECT_EQ(update->adapter_digest, "digest");
  ASSERT_EQ(update->views.size(), 1U);
  EXPECT_EQ(update->views[0].name, ViewName::kNoneRollout);
  EXPECT_EQ(update->views[0].first_index, 5);
  EXPECT_THAT(update->views[0].ids, ElementsAre(1, 2, 3));
}

TEST(ScoreRequestTest, AnUpdateThatTheModelCannotTakeIsRefused) {
  v1::ScoreRequest message = MakeUpdate();
  message.mutable_prefix()->mutable_views(0)->set_first_index(6);
  EXPECT_THAT(
      std::string(ParsePrefixUpdate(message, Limits()).status().message()),
      HasSubstr("9 tokens do not fit"));
  message = MakeUpdate();
  message.mutable_prefix()->mutable_views(0)->set_input_ids(1, 100);
  EXPECT_THAT(
      std::string(ParsePrefixUpdate(message, Limits()).status().message()),
      HasSubstr("input_ids[1] is 100"));
  message = MakeUpdate();
  while (message.prefix().views_size() <= kNumViews) {
    message.mutable_prefix()->add_views();
  }
  EXPECT_FALSE(ParsePrefixUpdate(message, Limits()).ok());
  message = MakeUpdate();
  message.mutable_prefix()->mutable_views(0)->set_name("rollout");
  EXPECT_FALSE(ParsePrefixUpdate(message, Limits()).ok());
}

TEST(ScoreRequestTest, TopKIsNotLookedAtForOtherPayloads) {
  v1::ScoreRequest message = MakeRequest();
  message.set_payload(v1::PAYLOAD_HIDDEN_STATES);
  message.set_top_k(0);
  message.set_temperature(0);
  EXPECT_TRUE(ParseScoreRequest(message, Limits()).ok());
}

}  // namespace
}  // namespace dapd
