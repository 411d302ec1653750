#include "services/trainer/status/trainer_metrics.h"

#include <filesystem>
#include <string>

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
  metrics.RecordEvaluation("step-000005",
                           {.truncated = Interval{0.25, 0.2, 0.3},
                            .repeated = Interval{0.125, 0.1, 0.2}});
  const std::string text = registry.Expose();
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_evaluation_truncated_ratio"
                        "{when=\"within\"} 0.25"));
  EXPECT_THAT(text,
              HasSubstr("\ndapd_trainer_evaluation_repeated_ratio"
                        "{when=\"within\"} 0.125"));
}

}  // namespace
}  // namespace dapd
