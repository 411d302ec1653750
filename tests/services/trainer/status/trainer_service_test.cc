#include "services/trainer/status/trainer_service.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/training/metric_table.h"
#include "services/trainer/status/status_message.h"

namespace dapd {
namespace {

TEST(TrainerServiceTest, TheAnswerHoldsTheStateAndTheWorkersOfBothRoles) {
  TrainerStatus status;
  StepReport report;
  report.step = 7;
  report.objective.loss = 0.25;
  report.objective.terms = {{.name = "entangled_rollout",
                             .value = 0.5,
                             .weight = 2.0,
                             .clipped_fraction = 0.125}};
  status.Change([&](v1::GetStatusResponse& state) {
    state.set_run_name("demo");
    state.set_phase(NameOf(TrainerPhase::kScoring));
    state.set_total_steps(20);
    state.set_phase_done(3);
    state.set_phase_total(8);
    ShowStepLine(StepLine(report), &state);
    ShowEvaluation("before",
                   {.problems = 100,
                    .accuracy = Interval{0.5, 0.4, 0.6},
                    .marker = " = ",
                    .marker_rate = Interval{0.75, 0.7, 0.8},
                    .truncated = Interval{0.25, 0.2, 0.3},
                    .repeated = Interval{0.125, 0.1, 0.2},
                    .divergences = {{"entangled_rollout", {0.1, 0.05, 0.15}}}},
                   &state);
  });
  status.SetWorkers(
      [] {
        return std::vector<WorkerState>{
            {.address = "127.0.0.1:1",
             .stage = WorkerStage::kReady,
             .policy_version = 7,
             .weights = {{WeightSet::kSnapshot, 4}, {WeightSet::kEma, 7}},
             .in_flight = 3}};
      },
      [] {
        return std::vector<WorkerState>{{.address = "127.0.0.1:2",
                                         .stage = WorkerStage::kLost,
                                         .last_error = "gone"}};
      });
  TrainerService service(&status);
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.run_name(), "demo");
  EXPECT_EQ(response.phase(), "scoring");
  EXPECT_EQ(response.step(), 7);
  EXPECT_EQ(response.total_steps(), 20);
  EXPECT_EQ(response.loss(), 0.25);
  EXPECT_EQ(response.phase_done(), 3);
  EXPECT_EQ(response.phase_total(), 8);
  ASSERT_EQ(response.evaluations_size(), 1);
  EXPECT_EQ(response.evaluations(0).when(), "before");
  EXPECT_EQ(response.evaluations(0).problems(), 100);
  EXPECT_EQ(response.evaluations(0).accuracy().low(), 0.4);
  EXPECT_EQ(response.evaluations(0).marker(), " = ");
  EXPECT_EQ(response.evaluations(0).marker_rate().high(), 0.8);
  EXPECT_EQ(response.evaluations(0).truncated().low(), 0.2);
  EXPECT_EQ(response.evaluations(0).repeated().high(), 0.2);
  EXPECT_EQ(response.evaluations(0).divergences(0).unclipped().high(), 0.15);
  ASSERT_EQ(response.terms_size(), 1);
  EXPECT_EQ(response.terms(0).name(), "entangled_rollout");
  EXPECT_EQ(response.terms(0).clipped_fraction(), 0.125);
  ASSERT_EQ(response.workers_size(), 2);
  EXPECT_EQ(response.workers(0).role(), "rollout");
  EXPECT_EQ(response.workers(0).in_flight(), 3U);
  ASSERT_EQ(response.workers(0).weights_size(), 2);
  EXPECT_EQ(response.workers(0).weights(0).set(), "snapshot");
  EXPECT_EQ(response.workers(0).weights(1).version(), 7);
  EXPECT_EQ(response.workers(1).role(), "teacher");
  EXPECT_EQ(response.workers(1).state(), "lost");
  EXPECT_EQ(response.workers(1).last_error(), "gone");
}

TEST(TrainerServiceTest, AStepThatTakesLongLeavesTheTimeOfTheOthers) {
  TrainerStatus status;
  status.Change([](v1::GetStatusResponse& state) {
    state.set_seconds_per_step(1e-12);  // shorter than the time since the step
    state.set_eta_seconds(44e-12);
  });
  EXPECT_DOUBLE_EQ(status.Get().eta_seconds(), 43e-12);
}

TEST(TrainerServiceTest, ANewStatusIsStarting) {
  TrainerStatus status;
  TrainerService service(&status);
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.phase(), "starting");
  EXPECT_EQ(response.workers_size(), 0);
}

TEST(TrainerServiceTest, TheNewestEvaluationsAreListedAndAllAreCounted) {
  constexpr int64_t kWithin = 3 * kMaxListedEvaluations;
  v1::GetStatusResponse message;
  ShowEvaluation("before", {.policy_version = 0}, &message);
  for (int64_t step = 1; step <= kWithin; ++step) {
    ShowEvaluation(
        absl::StrCat("step-", step), {.policy_version = step}, &message);
  }
  ShowEvaluation("after", {.policy_version = kWithin + 1}, &message);
  // A repeated evaluation is not counted twice.
  ShowEvaluation("after", {.policy_version = kWithin + 1}, &message);
  // An evaluation that is no longer listed is not counted twice either.
  ShowEvaluation("step-7", {.policy_version = 7}, &message);
  EXPECT_EQ(message.evaluation_count(), kWithin + 2);
  ASSERT_EQ(message.evaluations_size(), kMaxListedEvaluations + 2);
  EXPECT_EQ(message.evaluations(0).when(), "before");
  EXPECT_EQ(message.evaluations(1).policy_version(),
            kWithin - kMaxListedEvaluations + 1);
  EXPECT_EQ(message.evaluations(kMaxListedEvaluations).policy_version(),
            kWithin);
  EXPECT_EQ(message.evaluations(kMaxListedEvaluations + 1).when(), "after");
}

TEST(TrainerServiceTest, TheTimeLeftShrinksBetweenStepsAndNeverGoesBelowZero) {
  TrainerStatus status;
  status.Change([](v1::GetStatusResponse& state) {
    state.set_step(1);
    state.set_seconds_per_step(100.0);
    state.set_eta_seconds(1000.0);
  });
  const double first = status.Get().eta_seconds();
  EXPECT_LT(first, 1000.0);
  EXPECT_GT(first, 900.0);
  EXPECT_LT(status.Get().eta_seconds(), first);
  EXPECT_GT(status.Get().elapsed_seconds(), 0.0);
  status.Change(
      [](v1::GetStatusResponse& state) { state.set_eta_seconds(0.0); });
  EXPECT_EQ(status.Get().eta_seconds(), 0.0);
}

// Takes each row of the table of metrics that names a field of the status.
TEST(TrainerServiceTest, EveryNumberOfAStepIsShownInItsField) {
  StepReport report;
  report.step = 3;
  report.snapshot_version = 2;
  report.objective.loss = 0.25;
  report.optimizer = {.gradient_norm = 0.5, .learning_rate = 1e-3};
  report.objective.terms = {
      {.name = "a/b",
       .value = 1.5,
       .weight = 2.0,
       .by_teacher = {{"base", {.unclipped = 0.5, .tokens = 3}},
                      {"math", {.unclipped = 0.75, .tokens = 9}}}}};
  report.generated_tokens = 100;
  report.samples = 8;
  report.mean_rollout_tokens = 12.5;
  report.seconds[TrainerPhase::kTraining] = 4.0;
  report.sampler_mismatch = {.sum = 0.5, .largest = 0.25, .tokens = 4};
  v1::GetStatusResponse message;
  ShowStepLine(StepLine(report), &message);
  EXPECT_EQ(message.step(), 3);
  EXPECT_EQ(message.snapshot_step(), 2);
  EXPECT_EQ(message.loss(), 0.25);
  EXPECT_EQ(message.gradient_norm(), 0.5);
  EXPECT_EQ(message.learning_rate(), 1e-3);
  EXPECT_EQ(message.mean_rollout_tokens(), 12.5);
  EXPECT_EQ(message.generated_tokens_per_second(), 25.0);
  EXPECT_EQ(message.samples_per_second(), 2.0);
  EXPECT_EQ(message.sampler_mismatch_mean(), 0.125);
  EXPECT_EQ(message.sampler_mismatch_max(), 0.25);
  EXPECT_EQ(message.sampler_mismatch_tokens(), 4);
  ASSERT_EQ(message.terms_size(), 1);
  EXPECT_EQ(message.terms(0).name(), "a/b");
  EXPECT_EQ(message.terms(0).value(), 1.5);
  EXPECT_EQ(message.terms(0).weight(), 2.0);
  ASSERT_EQ(message.terms(0).teachers_size(), 2);
  EXPECT_EQ(message.terms(0).teachers(0).name(), "base");
  EXPECT_EQ(message.terms(0).teachers(0).unclipped(), 0.5);
  EXPECT_EQ(message.terms(0).teachers(1).name(), "math");
  EXPECT_EQ(message.terms(0).teachers(1).unclipped(), 0.75);
  EXPECT_EQ(message.terms(0).teachers(1).tokens(), 9);
}

TEST(TrainerServiceTest, ALineOfAnEarlierVersionIsShownAsFarAsItGoes) {
  nlohmann::ordered_json line = StepLine({.step = 3});
  line.erase("sampler_mismatch");
  v1::GetStatusResponse message;
  ShowStepLine(line, &message);
  EXPECT_EQ(message.step(), 3);
  EXPECT_EQ(message.sampler_mismatch_tokens(), 0);
}

TEST(TrainerServiceTest, WhatALineHasNoNumberForIsNotFinite) {
  StepReport report;
  report.step = 3;
  report.objective.loss = std::numeric_limits<double>::infinity();
  report.objective.terms = {
      {.name = "a", .value = std::numeric_limits<double>::quiet_NaN()}};
  report.optimizer.gradient_norm = 0.5;
  // metrics.jsonl has the same numbers.
  const std::string text = StepLine(report).dump();
  v1::GetStatusResponse message;
  ShowStepLine(nlohmann::ordered_json::parse(text), &message);
  EXPECT_TRUE(std::isnan(message.loss()));
  EXPECT_TRUE(std::isnan(message.terms(0).value()));
  EXPECT_EQ(message.gradient_norm(), 0.5);
}

TEST(TrainerServiceTest, TheWarningsAreTheNewestFindings) {
  const ClipFinding finding = {
      .term = "entangled_rollout", .clip = 0.05, .step = 40, .window = 20};
  v1::GetStatusResponse message;
  ShowClipFindings({finding, finding}, &message);
  ShowClipFindings({finding}, &message);
  ASSERT_EQ(message.warnings_size(), 1);
  EXPECT_EQ(message.warnings(0).term(), "entangled_rollout");
  EXPECT_EQ(message.warnings(0).step(), 40);
  EXPECT_EQ(message.warnings(0).text(), Describe(finding));
}

TEST(TrainerServiceTest, WarningsOfOneKindLeaveTheOthers) {
  using ::testing::ElementsAre;
  v1::GetStatusResponse message;
  const auto terms = [&] {
    std::vector<std::string> listed;
    for (const v1::RunWarning& warning : message.warnings()) {
      listed.push_back(warning.term());
    }
    return listed;
  };
  ShowDiskWait("the disk is full", &message);
  ShowClaimRise(ClaimRise{.step = 50, .now = {0.5, 0.4, 0.6}}, &message);
  ShowClipFindings({{.term = "entangled_rollout", .step = 40}}, &message);
  EXPECT_THAT(terms(), ElementsAre("", kClaimWarning, "entangled_rollout"));
  ShowClipFindings({}, &message);
  ShowClaimRise(ClaimRise{.step = 75, .now = {0.5, 0.4, 0.6}}, &message);
  EXPECT_THAT(terms(), ElementsAre("", kClaimWarning));
  EXPECT_EQ(message.warnings(1).step(), 75);
  EXPECT_THAT(message.warnings(1).text(),
              ::testing::HasSubstr("0.5000 [0.4000, 0.6000]"));
  ShowDiskWait("", &message);
  ShowClaimRise(std::nullopt, &message);
  EXPECT_EQ(message.warnings_size(), 0);
}

TEST(TrainerServiceTest, AnEvaluationThatIsRepeatedIsShownOnce) {
  v1::GetStatusResponse message;
  ShowEvaluation("before", {.problems = 1}, &message);
  ShowEvaluation("after", {.problems = 2}, &message);
  ShowEvaluation("before", {.problems = 3}, &message);
  ASSERT_EQ(message.evaluations_size(), 2);
  EXPECT_EQ(message.evaluations(0).problems(), 3);
  EXPECT_FALSE(message.evaluations(0).has_marker_rate());
  EXPECT_FALSE(message.evaluations(0).has_truncated());
  EXPECT_FALSE(message.evaluations(0).has_repeated());
}

TEST(TrainerServiceTest, WorkersAreNotAskedForOnceTheyAreGone) {
  TrainerStatus status;
  int asked = 0;
  status.SetWorkers(
      [&] {
        ++asked;
        return std::vector<WorkerState>();
      },
      {});
  status.GetWorkers();
  status.SetWorkers({}, {});
  status.GetWorkers();
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace dapd
