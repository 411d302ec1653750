#include "services/trainer/step/slice_trainer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

using SliceTrainerTest = TrainerLoopTest;

TEST_F(SliceTrainerTest, MicroBatchesAreTrainedWhileLaterAnswersAreSampled) {
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    for (const bool early : {false, true}) {
      loaded_.config.trainer.train_while_sampling = early;
      holds_back_ = early;
      loaded_.config.run.name = absl::StrCat(max_staleness, early);
      ASSERT_TRUE(Run(max_staleness).ok());
      losses.push_back(MetricOfSteps("loss"));
      EXPECT_THAT(MetricOfSteps("early_micro_batches"),
                  ElementsAre(early, early, early, early));
    }
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
    EXPECT_EQ(losses[0].size(), 4u);
  }
}

// The first problem's answer comes last. The second problem's micro-batch is
// trained out of turn if there is memory for its gradient.
TEST_F(SliceTrainerTest, MicroBatchesOutOfTurnChangeNoBit) {
  loaded_.config.run.name = "in-turn";
  loaded_.config.trainer.train_while_sampling = false;
  ASSERT_TRUE(Run(0).ok());
  const std::vector<double> losses = MetricOfSteps("loss");
  const std::vector<double> norms = MetricOfSteps("gradient_norm");
  EXPECT_THAT(MetricOfSteps("forward_ahead_tokens"), ElementsAre(0, 0, 0, 0));

  loaded_.config.trainer.train_while_sampling = true;
  answers_last_first_ = true;
  for (const bool has_memory : {true, false}) {
    loaded_.config.run.name = has_memory ? "out-of-turn" : "no-memory";
    loaded_.config.trainer.ahead_memory_mib = has_memory ? 64 : 0;
    holds_back_ = has_memory;  // without memory nothing would be trained
    ASSERT_TRUE(Run(0).ok());
    EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
    EXPECT_EQ(MetricOfSteps("gradient_norm"), norms);
    if (has_memory) {
      EXPECT_THAT(MetricOfSteps("early_micro_batches"),
                  ElementsAre(1, 1, 1, 1));
    } else {
      EXPECT_THAT(MetricOfSteps("forward_ahead_tokens"),
                  ElementsAre(0, 0, 0, 0));
    }
  }
}

// While the last answer is missing, its references pass forward and, where
// answers may be long, its sampled tokens, chunk by chunk.
TEST_F(SliceTrainerTest, WhatIsKnownOfAMissingAnswerPassesForward) {
  answer_.assign(40, 72);
  answer_.push_back(kSmallEndId);
  holds_back_ = true;
  Config& config = loaded_.config;
  config.run.name = "references";
  held_back_until_tokens_ = 1;
  ASSERT_TRUE(Run(0).ok());

  config.objective.terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kSnapshot, ViewName::kCrossRollout},
       .weight = 1.0}};
  config.trainer.chunk_tokens = 16;
  std::vector<std::vector<double>> losses;
  for (const bool are_long : {false, true}) {
    config.run.name = are_long ? "long" : "short";
    config.rollout.max_new_tokens = are_long ? 1'000'000 : 41;
    config.trainer.pack_tokens = are_long ? 4'000'000 : 4096;
    // The 40 tokens behind a prompt pass in whole chunks.
    held_back_until_tokens_ = are_long ? 48 : 0;
    ASSERT_TRUE(Run(0).ok());
    losses.push_back(MetricOfSteps("loss"));
    for (const double tokens : MetricOfSteps("forward_ahead_tokens")) {
      EXPECT_GE(tokens, static_cast<double>(held_back_until_tokens_));
    }
  }
  EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
}

}  // namespace
}  // namespace dapd
