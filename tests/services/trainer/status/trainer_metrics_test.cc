#include "services/trainer/status/trainer_metrics.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/run_folder.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainerMetricsTest, PhasesAndUploadsOfManyMinutesHaveBuckets) {
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, Config());
  StepReport report;
  report.step = 1;
  report.seconds[TrainerPhase::kRollout] = 4000.0;
  metrics.RecordStep(report);
  metrics.PoolObserver("rollout").on_adapter_pushed(400.0, 1);
  const std::string text = registry.Expose();
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_step_duration_seconds_bucket"
                        "{phase=\"rollout\",le=\"5000\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_adapter_push_duration_seconds_bucket"
                        "{role=\"rollout\",le=\"500\"} 1"));
}

TEST(TrainerMetricsTest, EachNumberIsThereUnderItsOwnName) {
  Config config;
  config.trainer.steps = 60;
  config.trainer.max_grad_norm = 0.5;
  config.checkpoint.interval = 3;
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, config);
  metrics.BeginPhase(TrainerPhase::kRollout);
  metrics.RecordPolicy(/*version=*/4, /*snapshot_version=*/5);
  metrics.RecordStart(/*step=*/6, /*resumed=*/true);
  metrics.RecordRecalled(7);
  metrics.RecordWriteFailure();
  metrics.SetPausedForDisk(true);
  PoolLoad load;
  load.workers = {{WorkerStage::kConnecting, 8},
                  {WorkerStage::kLoading, 9},
                  {WorkerStage::kReady, 10},
                  {WorkerStage::kLost, 11}};
  load.pending = 12;
  load.in_flight = 13;
  const WorkerPoolObserver pool = metrics.PoolObserver("teacher");
  pool.on_load(load);
  pool.on_outcome(TaskOutcome::kStale);
  pool.on_adapter_pushed(/*seconds=*/0.25, /*bytes=*/14);
  const CopyObserver copy = metrics.MakeCopyObserver();
  copy.on_newest(15);
  copy.on_copied(/*seconds=*/0.75);
  copy.on_left_out();
  copy.on_sent(16);
  const std::string text = registry.Expose();
  for (const char* line :
       {"dapd_trainer_planned_steps 60",
        "dapd_trainer_gradient_norm_limit 0.5",
        "dapd_trainer_checkpoint_interval_steps 3",
        "dapd_trainer_phase{phase=\"rollout\"} 1",
        "dapd_trainer_phase{phase=\"starting\"} 0",
        "dapd_trainer_policy_version 4",
        "dapd_trainer_snapshot_version 5",
        "dapd_checkpoint_last_step 6",
        "dapd_resumes_total 1",
        "dapd_trainer_recalled_answers_total 7",
        "dapd_checkpoint_failures_total 1",
        "dapd_trainer_paused_for_disk 1",
        "dapd_trainer_workers{role=\"teacher\",state=\"connecting\"} 8",
        "dapd_trainer_workers{role=\"teacher\",state=\"loading\"} 9",
        "dapd_trainer_workers{role=\"teacher\",state=\"ready\"} 10",
        "dapd_trainer_workers{role=\"teacher\",state=\"lost\"} 11",
        "dapd_trainer_tasks_pending{role=\"teacher\"} 12",
        "dapd_trainer_tasks_in_flight{role=\"teacher\"} 13",
        "dapd_trainer_tasks_total{outcome=\"stale\",role=\"teacher\"} 1",
        "dapd_trainer_tasks_total{outcome=\"stale\",role=\"rollout\"} 0",
        "dapd_trainer_adapter_push_duration_seconds_sum{role=\"teacher\"} "
        "0.25",
        "dapd_trainer_adapter_push_bytes_total{role=\"teacher\"} 14",
        "dapd_checkpoint_copied_step 15",
        "dapd_checkpoint_copied_total 1",
        "dapd_checkpoint_copy_seconds_sum 0.75",
        "dapd_checkpoint_copy_failures_total 0",
        "dapd_checkpoint_copy_left_out_total 1",
        "dapd_checkpoint_copy_bytes_total 16"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
  metrics.RecordStart(0, /*resumed=*/false);
  metrics.RecordCheckpoint(/*step=*/17, /*seconds=*/0.5);
  const std::string later = registry.Expose();
  for (const char* line : {"dapd_resumes_total 1",
                           "dapd_checkpoint_last_step 17",
                           "dapd_checkpoint_saved_total 1",
                           "dapd_checkpoint_seconds_sum 0.5"}) {
    EXPECT_THAT(later, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

// `row` stands for all teachers of the rows, and each has a series of its own.
TEST(TrainerMetricsTest, TheTeachersOfRowsHaveSeriesOfTheirOwn) {
  Config config;
  config.objective.terms = {
      {.name = "opd", .target = PassWith(kRowTeacher, ViewName::kNoneRollout)}};
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, config);
  StepReport report;
  report.objective.terms = {
      {.name = "opd",
       .unclipped = 0.5,
       .by_teacher = {{"base", {.unclipped = 0.25, .tokens = 3}},
                      {"math", {.unclipped = 0.75, .tokens = 9}}}}};
  metrics.RecordStep(report);
  const std::string text = registry.Expose();
  for (const char* line :
       {"dapd_trainer_unclipped_divergence{teacher=\"row\",term=\"opd\"} 0.5",
        "dapd_trainer_teacher_divergence{teacher=\"base\",term=\"opd\"} 0.25",
        "dapd_trainer_teacher_divergence{teacher=\"math\",term=\"opd\"} 0.75",
        "dapd_trainer_teacher_term_tokens{teacher=\"math\",term=\"opd\"} 9"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

TEST(TrainerMetricsTest, NoWorkerIsBehindThatNothingIsAskedOf) {
  constexpr char kServed[] = "\ndapd_trainer_rollout_policy_version 3";
  Config config;
  {
    MetricsRegistry registry("trainer");
    TrainerMetrics(registry, config).RecordServed(3);
    EXPECT_THAT(registry.Expose(), HasSubstr(kServed));
  }
  config.objective.preset = "sft";
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, config);
  metrics.RecordServed(3);
  EXPECT_THAT(registry.Expose(), Not(HasSubstr(kServed)));
  config.evaluation.path = "held_out.jsonl";
  TrainerMetrics(registry, config).RecordServed(3);
  EXPECT_THAT(registry.Expose(), HasSubstr(kServed));
}

TEST(TrainerMetricsTest, TheDiskIsTheOneThatTheRunFolderIsALinkTo) {
  Config config;
  config.run = {.name = "linked", .output_dir = TempPath("runs")};
  const auto size_of = [](const std::string& path) {
    return std::filesystem::space(path).capacity;
  };
  std::filesystem::create_directories(config.run.output_dir);
  std::filesystem::create_directory_symlink("/dev/shm", FolderOf(config.run));
  if (size_of("/dev/shm") == size_of(config.run.output_dir)) {
    GTEST_SKIP() << "/dev/shm is no other file system";
  }
  MetricsRegistry registry("trainer");
  const TrainerMetrics metrics(registry, config);
  EXPECT_THAT(registry.Expose(),
              HasSubstr(absl::StrFormat("\ndapd_trainer_disk_size_bytes %d\n",
                                        size_of("/dev/shm"))));
}

TEST(TrainerMetricsTest, WhatAnEvaluationOfAnOlderRunLacksIsNoZero) {
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, Config());
  metrics.RecordEvaluation("before", {});
  EXPECT_THAT(registry.Expose(), Not(HasSubstr("evaluation_truncated_ratio")));
  EXPECT_THAT(registry.Expose(), Not(HasSubstr("claim_probability")));
  metrics.RecordEvaluation("step-000005",
                           {.truncated = Interval{0.25, 0.2, 0.3},
                            .repeated = Interval{0.125, 0.1, 0.2},
                            .claims = ClaimFigures{.none = {0.5, 0.4, 0.6}}});
  const std::string text = registry.Expose();
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_evaluation_truncated_ratio"
                        "{when=\"within\"} 0.25"));
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_evaluation_repeated_ratio"
                        "{when=\"within\"} 0.125"));
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_evaluation_claim_probability"
                        "{view=\"none\",when=\"within\"} 0.5"));
  EXPECT_THAT(text, Not(HasSubstr("view=\"cross\"")));
}

TEST(TrainerMetricsTest, GradesAreCounted) {
  MetricsRegistry registry("trainer");
  TrainerMetrics metrics(registry, Config());
  EXPECT_THAT(registry.Expose(), Not(HasSubstr("graded_total")));
  const GradingObserver observer = metrics.MakeGradingObserver();
  EXPECT_THAT(
      registry.Expose(),
      HasSubstr("\ndapd_trainer_ungraded_total{reason=\"too_long\"} 0"));
  observer.on_result({.correct = true, .score = 1.0}, 0.5);
  observer.on_result({.ungraded = Ungraded::kTimeout}, 60.0);
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("\ndapd_trainer_graded_total 1"));
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_ungraded_total{reason=\"timeout\"} 1"));
  EXPECT_THAT(text, HasSubstr("\ndapd_trainer_grading_seconds_count 2"));
}

}  // namespace
}  // namespace dapd
