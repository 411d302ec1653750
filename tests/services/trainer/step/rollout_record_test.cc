#include "services/trainer/step/rollout_record.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/data/text_pipeline.h"
#include "tests/services/trainer/trainer_loop_fixture.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using RolloutRecordTest = TrainerLoopTest;

// As in the released code, an answer of padding alone has no scored token, but
// its reference has scored tokens.
TEST_F(RolloutRecordTest, AnAnswerOfPaddingAloneLeavesItsReferencesTerms) {
  PadWithTheEnd();
  const auto tokens_of = [&](const std::string& term) {
    return MetricOfSteps("/terms/" + term + "/tokens");
  };
  loaded_.config.trainer.micro_batch_size = 2;
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    for (const bool early : {false, true}) {
      loaded_.config.trainer.train_while_sampling = early;
      loaded_.config.run.name = absl::StrCat("mixed", max_staleness, early);
      even_answer_ = {kSmallEndId};
      ASSERT_TRUE(Run(max_staleness).ok());
      EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(1, 1, 1, 1));
      EXPECT_THAT(MetricOfSteps("untrainable_samples"),
                  ElementsAre(1, 1, 1, 1));
      EXPECT_THAT(tokens_of("entangled_rollout"), ElementsAre(2, 2, 2, 2));
      const double references = tokens_of("entangled_reference")[0];
      losses.push_back(MetricOfSteps("loss"));

      loaded_.config.run.name = absl::StrCat("all", max_staleness, early);
      answer_ = {kSmallEndId, kSmallEndId};
      ASSERT_TRUE(Run(max_staleness).ok());
      EXPECT_THAT(MetricOfSteps("untrainable_samples"),
                  ElementsAre(2, 2, 2, 2));
      EXPECT_THAT(tokens_of("privileged_rollout"), ElementsAre(0, 0, 0, 0));
      EXPECT_EQ(tokens_of("privileged_reference")[0], references);
      for (const double norm : MetricOfSteps("gradient_norm")) {
        EXPECT_GT(norm, 0.0);
      }
      answer_ = {72, 105, kSmallEndId};
    }
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
  }
}

// In each group of two the second answer is right. The teacher of the first
// answer reads it; the second answer has no right sibling.
TEST_F(RolloutRecordTest, ASiblingTeachesTheOthersOfItsGroup) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.rollout.group_size = 2;
  config.trainer.batch_size = 4;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % (2 * kMaxAttempts) == 0 ? "5" : "123");
  };
  std::vector<std::vector<double>> losses;
  for (const bool last_first : {false, true}) {
    config.run.name = last_first ? "last-first" : "in-order";
    answers_last_first_ = last_first;
    ASSERT_TRUE(Run(0).ok());
    losses.push_back(MetricOfSteps("loss"));
    EXPECT_THAT(MetricOfSteps("/rollout/taught_fraction"),
                ElementsAre(0.5, 0.5, 0.5, 0.5));
    EXPECT_THAT(MetricOfSteps("/rollout/solved_fraction"),
                ElementsAre(1, 1, 1, 1));
    EXPECT_THAT(MetricOfSteps("/rollout/correct_fraction"),
                ElementsAre(0.5, 0.5, 0.5, 0.5));
    const auto tokens = static_cast<double>(2 * Boxed("5").size());
    EXPECT_THAT(MetricOfSteps("/terms/sdpo/tokens"),
                ElementsAre(tokens, tokens, tokens, tokens));
    const std::vector<nlohmann::json> rows = SamplesOfStep(1);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].at("id"), rows[1].at("id"));
    EXPECT_NE(rows[0].at("id"), rows[2].at("id"));
    EXPECT_EQ(rows[0].at("sibling"), "\\boxed{123}");
    EXPECT_FALSE(rows[1].contains("sibling"));
  }
  EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
}

TEST_F(RolloutRecordTest, WithoutARightAnswerThePolicyRests) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey&) { return Boxed("5"); };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("loss"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("gradient_norm"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("/rollout/taught_fraction"),
              ElementsAre(0, 0, 0, 0));
  // The feedback on wrong answers teaches something.
  config.run.name = "feedback";
  config.objective.sdpo.feedback = FeedbackRule::kWithoutSibling;
  config.prompts.feedback_wrong = "{answer} is wrong";
  text_ = LoadTextPipeline(folder_, MakeViewOptions(config), -1).value();
  ASSERT_TRUE(Run(0).ok());
  for (const double norm : MetricOfSteps("gradient_norm")) EXPECT_GT(norm, 0.0);
  EXPECT_EQ(SamplesOfStep(1)[0].at("feedback"), "5 is wrong");
}

// No answer is right in the third step. A term without a weight still has
// tokens there, but teaches nothing.
TEST_F(RolloutRecordTest, WhatIsOnlyMeasuredDoesNotKeepThePolicyFromResting) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.rollout.group_size = 2;
  config.trainer.learning_rate = 1e-2;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.step != 2 && key.sample >= kMaxAttempts ? "123" : "5");
  };
  std::vector<Term> terms = ExpandTerms(config.objective);
  std::vector<std::vector<double>> values;
  for (const bool measures : {false, true}) {
    config.run.name = measures ? "measured" : "alone";
    if (measures) {
      terms.push_back(
          {.name = "measured",
           .student = ViewName::kNoneRollout,
           .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
           .weight = 0.0});
    }
    config.objective.terms = terms;
    ASSERT_TRUE(Run(0).ok());
    values.push_back(MetricOfSteps("/terms/sdpo/value"));
  }
  EXPECT_GT(MetricOfSteps("/terms/measured/tokens")[2], 0.0);
  EXPECT_EQ(values[0][2], 0.0);
  EXPECT_GT(values[0][3], 0.0);
  EXPECT_EQ(values[0], values[1]) << "bit for bit";
}

TEST_F(RolloutRecordTest, ASecondAnswerStandsInTheReferencesPlace) {
  Config& config = loaded_.config;
  config.rollout.source = ReferenceSource::kDual;
  // The second answer once equals the first answer, so a third answer is drawn.
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts < 2 ? "5" : "7");
  };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 6u);
  for (const nlohmann::json& row : SamplesOfStep(1)) {
    EXPECT_EQ(row.at("rollout"), "\\boxed{5}");
    EXPECT_EQ(row.at("reference"), "\\boxed{7}");
    EXPECT_EQ(row.at("reference_ids"), Boxed("7"));
  }
  const auto tokens = static_cast<double>(2 * Boxed("7").size());
  EXPECT_EQ(MetricOfSteps("/terms/entangled_reference/tokens")[0], tokens);
  for (const double norm : MetricOfSteps("gradient_norm")) EXPECT_GT(norm, 0.0);

  config.run.name = "always-equal";
  config.trainer.steps = 1;
  answer_of_ = [this](const SamplingKey&) { return Boxed("5"); };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 2u * 10);
}

TEST_F(RolloutRecordTest, TheFirstApprovedCandidateStandsInTheReferencesPlace) {
  Config& config = loaded_.config;
  config.rollout.source = ReferenceSource::kVerified;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 3 ? "123" : "5");
  };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 2u * 5);
  EXPECT_THAT(MetricOfSteps("/rollout/verified_fraction"),
              ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(SamplesOfStep(1)[0].at("reference"), "\\boxed{123}");

  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts == 1 ? "6" : "5");
  };
  config.run.name = "first";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(MetricOfSteps("/rollout/verified_fraction")[0], 0.0);
  EXPECT_EQ(SamplesOfStep(1)[0].at("reference"), "\\boxed{6}");
  EXPECT_EQ(MetricOfSteps("samples")[0], 2.0);

  config.run.name = "skip";
  config.rollout.unverified = Unverified::kSkip;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("left_out_samples"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("gradient_norm"), ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(SamplesOfStep(1)[0].at("left_out").get<bool>());
  EXPECT_TRUE(ForEachJsonLine(RunFolder::Open(config.run)->File("ledger.jsonl"),
                              [&](const nlohmann::json& event, int) {
                                EXPECT_FALSE(event.at("event") == "trained" &&
                                             event.contains("samples"))
                                    << event;
                                return absl::OkStatus();
                              })
                  .ok());
}

// The built-in grader finds 123 right; this one finds 5 right.
constexpr char kFiveIsRight[] =
    "g['score'] = 0.9 if '{5}' in q['answer'] else 0.2; "
    "g['feedback'] = 'not ' + q['expected']";

TEST_F(RolloutRecordTest, AGraderOfTheUsersOwnChoosesTheCandidate) {
  Config& config = loaded_.config;
  config.rollout.source = ReferenceSource::kVerified;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 3 ? "5" : "123");
  };
  std::vector<std::vector<double>> losses;
  for (const bool early : {false, true}) {
    config.trainer.train_while_sampling = early;
    config.run.name = early ? "early" : "late";
    GradeBy(kFiveIsRight);
    ASSERT_TRUE(Run(0).ok());
    losses.push_back(MetricOfSteps("loss"));
    EXPECT_THAT(MetricOfSteps("/rollout/verified_fraction"),
                ElementsAre(1, 1, 1, 1));
    // Attempt 0.
    EXPECT_THAT(MetricOfSteps("/rollout/correct_fraction"),
                ElementsAre(0, 0, 0, 0));
    const auto row = SamplesOfStep(1)[0];
    EXPECT_EQ(row.at("reference"), "\\boxed{5}");
    EXPECT_EQ(row.at("score"), 0.2);
    EXPECT_FALSE(row.at("correct").get<bool>());
  }
  EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
}

TEST_F(RolloutRecordTest, AGradersFeedbackReachesTheSelfTeacher) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.objective.sdpo.feedback = FeedbackRule::kAlways;
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % (2 * kMaxAttempts) == 0 ? "5" : "123");
  };
  GradeBy(kFiveIsRight);
  ASSERT_TRUE(Run(0).ok());
  const std::vector<nlohmann::json> rows = SamplesOfStep(1);
  EXPECT_EQ(rows[0].at("feedback"), "not 123");
  EXPECT_FALSE(rows[0].contains("sibling"));
  EXPECT_EQ(rows[1].at("sibling"), "\\boxed{5}");
  for (const double norm : MetricOfSteps("gradient_norm")) EXPECT_GT(norm, 0.0);
}

TEST_F(RolloutRecordTest, AnUngradedAnswerIsNotRightAndTheRunGoesOn) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.objective.sdpo.feedback = FeedbackRule::kAlways;
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % (2 * kMaxAttempts) == 0 ? "5" : "123");
  };
  const std::string declines =
      "g.update({'error': 'no'} if '{5}' in q['answer'] else {'score': 1})";
  GradeBy(declines);
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("/rollout/correct_fraction"),
              ElementsAre(1, 1, 1, 1));
  const std::vector<nlohmann::json> rows = SamplesOfStep(1);
  EXPECT_EQ(rows[0].at("ungraded"), "declined");
  EXPECT_FALSE(rows[0].contains("score"));
  // Not even the built-in grader's feedback.
  EXPECT_FALSE(rows[0].contains("feedback"));
  EXPECT_EQ(rows[0].at("sibling"), "\\boxed{123}");

  config.run.name = "fails";
  GradeBy(declines, {.on_error = OnUngraded::kFail});
  const absl::Status outcome = Run(0);
  EXPECT_TRUE(absl::IsUnavailable(outcome)) << outcome;
  EXPECT_THAT(outcome.message(), HasSubstr("(declined): no"));
}

// A second run in the folder finds the grades, although its grader would never
// answer.
TEST_F(RolloutRecordTest, ARecordedGradeIsNotAskedForAgain) {
  Config& config = loaded_.config;
  config.rollout.source = ReferenceSource::kVerified;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 3 ? "5" : "123");
  };
  GradeBy(kFiveIsRight);
  ASSERT_TRUE(Run(0).ok());
  const auto losses = MetricOfSteps("loss");
  GradeBy("os._exit(1)", {.on_error = OnUngraded::kFail});
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
}

TEST_F(RolloutRecordTest, AGraderOfTheUsersOwnGradesHeldOutAnswers) {
  EvaluateEvery(0);
  data_.problems[0].answer.clear();
  held_out_.problems = {data_.problems[0]};
  GradeBy("g['score'] = 0.5 if q['row'] is None else 0");
  ASSERT_TRUE(Run(0).ok());
  ASSERT_EQ(shown_.held_out.size(), 1u);
  EXPECT_EQ(shown_.held_out[0].after->grade, AnswerGrade::kRight);
}

}  // namespace
}  // namespace dapd
