#include "common/config/run_settings.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(RunSettingsTest, WhatARunsResultDependsOnMustStay) {
  const auto settings = ResultSettings({});
  for (const char* key : {"run.seed",
                          "lora.rank",
                          "objective.temperature",
                          "rollout.temperature",
                          "rollout.max_staleness",
                          "teacher.payload",
                          "teacher.chunk_tokens",
                          "trainer.batch_size",
                          "trainer.learning_rate",
                          "trainer.schedule_steps",
                          "trainer.pack_tokens",
                          "trainer.chunk_tokens"}) {
    EXPECT_TRUE(settings.contains(key)) << key;
    EXPECT_FALSE(MayChangeOnResume(key)) << key;
  }
}

TEST(RunSettingsTest, WhereThingsAreAndWhoHelpsMayChange) {
  const auto settings = ResultSettings({});
  for (const char* key : {"run.name",
                          "run.notify_url",
                          "model.path",
                          "run.rollout_workers",
                          "run.gpus",
                          "rollout.slots",
                          "rollout.kv_memory_mib",
                          "rollout.kv_precision",
                          "rollout.tensor_parallel",
                          "rollout.addresses",
                          "teacher.connections",
                          "teacher.prefix_memory_mib",
                          "teacher.mps_percentage",
                          "trainer.steps",
                          "trainer.rank",
                          "trainer.ranks",
                          "trainer.rank_timeout_seconds",
                          "trainer.timeline_steps",
                          "evaluation.samples",
                          "checkpoint.interval",
                          "metrics.trainer_listen",
                          "log.format",
                          "log.level",
                          "security.tokens.viewer"}) {
    EXPECT_FALSE(settings.contains(key)) << key;
    EXPECT_TRUE(MayChangeOnResume(key)) << key;
  }
  EXPECT_FALSE(MayChangeOnResume("no.such.key"));
}

TEST(RunSettingsTest, ALaterKeyCountsWhereItIsNotTheDefault) {
  EXPECT_FALSE(ResultSettings({}).contains("prompts.none"));
  EXPECT_FALSE(ResultSettings({}).contains("objective.divergence"));
  Config config;
  config.prompts.none = "{problem}";
  config.objective.divergence = DivergenceKind::kReverseKl;
  EXPECT_EQ(ResultSettings(config).at("prompts.none"), "\"{problem}\"");
  EXPECT_EQ(ResultSettings(config).at("objective.divergence"),
            "\"reverse_kl\"");
  EXPECT_FALSE(MayChangeOnResume("prompts.none"));
}

TEST(RunSettingsTest, ASettingIsTheValueAsText) {
  Config config;
  config.trainer.batch_size = 77;
  EXPECT_EQ(ResultSettings(config).at("trainer.batch_size"), "77");
}

TEST(RunSettingsTest, TheRateOfAMovingAverageCountsOnlyWhereItIsRead) {
  Config config;
  EXPECT_FALSE(ResultSettings(config).contains("teacher.ema_rate"));
  config.objective.terms = {
      {.target = TeacherPass{.weights = WeightSet::kEma}}};
  EXPECT_EQ(ResultSettings(config).at("teacher.ema_rate"), "0.01");
}

// A run that began with an earlier version can continue.
TEST(RunSettingsTest, YoungKeysCountOnlyWhereTheyAreRead) {
  Config config;
  for (const char* key : {"lora.start_from",
                          "rollout.source",
                          "rollout.unverified",
                          "rollout.group_size",
                          "objective.sdpo.top_k"}) {
    EXPECT_FALSE(ResultSettings(config).contains(key)) << key;
  }
  config.lora.start_from = "adapter";
  config.objective.preset = "sdpo";
  config.rollout.group_size = 8;
  config.rollout.source = ReferenceSource::kVerified;
  for (const char* key : {"lora.start_from",
                          "rollout.source",
                          "rollout.unverified",
                          "rollout.group_size",
                          "objective.sdpo.top_k"}) {
    EXPECT_TRUE(ResultSettings(config).contains(key)) << key;
  }
}

TEST(RunSettingsTest, OnlyWhoseGraderGradesCounts) {
  Config config;
  EXPECT_FALSE(ResultSettings(config).contains("grader"));
  config.grader.command = {"a"};
  const auto by_command = ResultSettings(config);
  EXPECT_TRUE(by_command.contains("grader"));
  config.grader.command.clear();
  config.grader.url = "https://b";
  config.grader.workers = 9;
  EXPECT_EQ(ResultSettings(config), by_command);
  config.grader.max_feedback_bytes = 5;
  EXPECT_NE(ResultSettings(config), by_command);
}

}  // namespace
}  // namespace dapd
