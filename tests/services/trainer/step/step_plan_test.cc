#include "services/trainer/step/step_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

TEST(StepPlanTest, APlanSurvivesTheWay) {
  StepPlan plan{.step = 7};
  plan.recalled[3].ids = {1, 2, 3};
  plan.recalled[3].finish_reason = FinishReason::kLength;
  plan.recalled[3].policy_version = 6;
  plan.recalled[3].adapter_digest = "abc";
  const auto read = ParsePlan(SerializePlan(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->step, 7);
  ASSERT_EQ(read->recalled.size(), 1U);
  const RolloutResult& answer = read->recalled.at(3);
  EXPECT_THAT(answer.ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(answer.policy_version, 6);
  EXPECT_EQ(answer.adapter_digest, "abc");
}

TEST(StepPlanTest, AnswersSurviveTheWay) {
  std::vector<BatchAnswer> answers(2);
  answers[0].sample = 4;
  answers[1].sample = 5;
  answers[1].result.ids = {9};
  const auto read = ParseAnswers(SerializeAnswers(answers));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].sample, 4);
  EXPECT_TRUE((*read)[0].result.ids.empty());
  EXPECT_THAT((*read)[1].result.ids, ElementsAre(9));
}

TEST(StepPlanTest, WhatNoRankWroteIsRefused) {
  for (const char* text : {"",
                           "7",
                           "{}",
                           "{\"step\":1}",
                           "[{\"sample\":1}]",
                           "{\"step\":\"x\",\"recalled\":[]}"}) {
    EXPECT_FALSE(ParsePlan(text).ok()) << text;
  }
  EXPECT_FALSE(ParseAnswers("[1]").ok());
}

}  // namespace
}  // namespace dapd
