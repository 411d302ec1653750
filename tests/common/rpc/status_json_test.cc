#include "common/rpc/status_json.h"

#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

v1::GetStatusResponse MakeStatus() {
  v1::GetStatusResponse status;
  status.set_step(7);
  status.set_loss(0.125);
  status.add_terms()->set_clipped_fraction(0.25);
  status.mutable_terms(0)->add_teachers()->set_tokens(9);
  status.add_workers()->set_policy_version(-1);
  status.mutable_workers(0)->add_weights()->set_set("ema");
  v1::EvaluationStatus& evaluation = *status.add_evaluations();
  evaluation.mutable_accuracy()->set_low(0.5);
  evaluation.set_marker(" = ");
  evaluation.mutable_marker_rate()->set_mean(0.75);
  evaluation.mutable_truncated()->set_mean(0.25);
  evaluation.mutable_repeated()->set_high(0.125);
  evaluation.mutable_claims_none()->set_mean(0.0625);
  evaluation.mutable_claims_cross()->set_low(0.03125);
  evaluation.add_divergences()->mutable_unclipped()->set_high(2.0);
  status.add_warnings()->set_text("the clip hides something");
  return status;
}

// Expects every field of the message, and of messages in it, by its proto name.
void ExpectEveryField(const google::protobuf::Message& message,
                      const nlohmann::ordered_json& json) {
  const auto& descriptor = *message.GetDescriptor();
  EXPECT_EQ(static_cast<size_t>(descriptor.field_count()), json.size());
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *descriptor.field(i);
    ASSERT_TRUE(json.contains(field.name())) << field.full_name();
    if (field.cpp_type() != field.CPPTYPE_MESSAGE) continue;
    const auto& reflection = *message.GetReflection();
    if (field.is_repeated()) {
      ASSERT_EQ(reflection.FieldSize(message, &field), 1) << field.full_name();
      ExpectEveryField(reflection.GetRepeatedMessage(message, &field, 0),
                       json[field.name()][0]);
    } else {
      ExpectEveryField(reflection.GetMessage(message, &field),
                       json[field.name()]);
    }
  }
}

TEST(StatusJsonTest, EveryFieldOfTheProtoIsThereByItsName) {
  const v1::GetStatusResponse status = MakeStatus();
  ExpectEveryField(status, StatusJson(status));
}

TEST(StatusJsonTest, NumbersAreNumbers) {
  const nlohmann::ordered_json json = StatusJson(MakeStatus());
  EXPECT_EQ(json["step"], 7);
  EXPECT_TRUE(json["step"].is_number_integer());
  EXPECT_EQ(json["loss"], 0.125);
  EXPECT_EQ(json["terms"][0]["clipped_fraction"], 0.25);
  EXPECT_EQ(json["terms"][0]["teachers"][0]["tokens"], 9);
  EXPECT_EQ(json["workers"][0]["policy_version"], -1);
  EXPECT_EQ(json["workers"][0]["weights"][0]["set"], "ema");
  EXPECT_EQ(json["evaluations"][0]["accuracy"]["low"], 0.5);
  EXPECT_EQ(json["evaluations"][0]["marker"], " = ");
  EXPECT_EQ(json["evaluations"][0]["marker_rate"]["mean"], 0.75);
  EXPECT_EQ(json["evaluations"][0]["truncated"]["mean"], 0.25);
  EXPECT_EQ(json["evaluations"][0]["repeated"]["high"], 0.125);
  EXPECT_EQ(json["evaluations"][0]["claims_none"]["mean"], 0.0625);
  EXPECT_EQ(json["evaluations"][0]["claims_cross"]["low"], 0.03125);
  EXPECT_EQ(json["warnings"][0]["text"], "the clip hides something");
}

TEST(StatusJsonTest, AnEvaluationWithoutAMarkerHasNone) {
  v1::GetStatusResponse status;
  status.add_evaluations();
  const nlohmann::ordered_json json = StatusJson(status)["evaluations"][0];
  EXPECT_TRUE(json.contains("format_rate"));
  EXPECT_FALSE(json.contains("accuracy")) << "nor has it an accuracy";
  EXPECT_FALSE(json.contains("marker") || json.contains("marker_rate"));
}

TEST(StatusJsonTest, AnEvaluationOfAnOlderRunLacksWhatItDidNotMeasure) {
  v1::GetStatusResponse status;
  status.add_evaluations();
  const nlohmann::ordered_json json = StatusJson(status)["evaluations"][0];
  EXPECT_FALSE(json.contains("truncated") || json.contains("repeated"));
  EXPECT_FALSE(json.contains("claims_none") || json.contains("claims_cross"));
}

TEST(StatusJsonTest, AnEmptyStatusHasEmptyLists) {
  const nlohmann::ordered_json json = StatusJson({});
  for (const char* list : {"terms", "workers", "evaluations", "warnings"}) {
    EXPECT_TRUE(json[list].is_array() && json[list].empty()) << list;
  }
}

}  // namespace
}  // namespace dapd
