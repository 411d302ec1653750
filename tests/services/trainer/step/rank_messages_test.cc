#include "services/trainer/step/rank_messages.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "dapd/v1/rank.pb.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

TEST(StepPlanTest, APlanSurvivesTheWay) {
  constexpr AnswerPlace kPlace = {3, 2};
  StepPlan plan{.step = 7, .is_evaluated = true};
  plan.recalled[kPlace].ids = {1, 2, 3};
  plan.recalled[kPlace].logprobs = {-0.1F, -2.0F, -1e-30F};
  plan.recalled[kPlace].finish_reason = FinishReason::kLength;
  plan.recalled[kPlace].policy_version = 6;
  plan.recalled[kPlace].adapter_digest = "abc";
  const auto read = ParsePlan(SerializePlan(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 7);
  EXPECT_TRUE(read->is_evaluated);
  ASSERT_EQ(read->recalled.size(), 1U);
  const RolloutResult& answer = read->recalled.at(kPlace);
  EXPECT_THAT(answer.ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(answer.logprobs, ElementsAre(-0.1F, -2.0F, -1e-30F));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(answer.policy_version, 6);
  EXPECT_EQ(answer.adapter_digest, "abc");
}

TEST(StepPlanTest, AnswersSurviveTheWay) {
  PlacedAnswers answers;
  answers[{4, 1}].finish_reason = FinishReason::kLength;
  answers[{5}].ids = {9};
  answers[{5}].grade = {.correct = true, .score = 0.1, .feedback = "f"};
  answers[{6}].grade = {.ungraded = Ungraded::kNonsense};
  const auto read = ParseAnswers(SerializeAnswers(answers));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ(read->at({4, 1}).grade, std::nullopt);
  EXPECT_EQ(read->at({5}).grade, answers[{5}].grade);
  EXPECT_EQ(read->at({6}).grade, answers[{6}].grade);
  EXPECT_TRUE(read->at({4, 1}).ids.empty());
  EXPECT_EQ(read->at({4, 1}).finish_reason, FinishReason::kLength);
  EXPECT_THAT(read->at({5}).ids, ElementsAre(9));
  EXPECT_EQ(read->at({5}).finish_reason, FinishReason::kEos);
}

TEST(StepPlanTest, TheEndOfTheRunIsAPlan) {
  const auto read = ParsePlan(SerializePlan({.step = 0}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 0);
}

TEST(StepPlanTest, WhatNoRankWroteIsRefused) {
  for (const char* bytes : {"", "{\"step\":1}", "\xff\xff"}) {
    const absl::Status status = ParsePlan(bytes).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << bytes << status;
  }
  EXPECT_FALSE(ParseAnswers("\xff").ok());
}

TEST(StepPlanTest, AnAnswerThatIsNotWholeIsRefused) {
  v1::BatchAnswers message;
  v1::BatchAnswer& answer = *message.add_answers();
  answer.set_sample(0);
  answer.add_ids(5);
  answer.add_ids(6);
  EXPECT_TRUE(ParseAnswers(message.SerializeAsString()).ok());
  answer.add_logprobs(-1.0F);
  EXPECT_TRUE(
      absl::IsDataLoss(ParseAnswers(message.SerializeAsString()).status()))
      << "one log-probability for two tokens";
  answer.add_logprobs(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(ParseAnswers(message.SerializeAsString()).ok());
  answer.set_logprobs(1, -2.0F);
  EXPECT_TRUE(ParseAnswers(message.SerializeAsString()).ok());
  answer.clear_sample();
  EXPECT_FALSE(ParseAnswers(message.SerializeAsString()).ok());
}

TEST(StepPlanTest, AnAnswerThatIsUngradedForAnUnknownReasonIsRefused) {
  v1::BatchAnswers message;
  v1::BatchAnswer& answer = *message.add_answers();
  answer.set_sample(0);
  answer.mutable_grade()->set_ungraded("tired");
  EXPECT_TRUE(
      absl::IsDataLoss(ParseAnswers(message.SerializeAsString()).status()));
}

}  // namespace
}  // namespace dapd
