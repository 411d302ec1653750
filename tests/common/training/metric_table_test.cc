#include "common/training/metric_table.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepReport MakeReport() {
  StepReport report;
  report.step = 3;
  report.adapter_digest = "abc";
  report.objective.loss = 0.25;
  report.objective.terms = {{.name = "a/b", .value = 0.5, .tokens = 7},
                            {.name = "c", .value = 1.5, .tokens = 9}};
  report.optimizer.gradient_norm = 0.125;
  report.seconds[TrainerPhase::kTraining] = 2.0;
  report.seconds[TrainerPhase::kPublishing] = 0.5;
  report.payload_bytes = int64_t{1} << 40;
  report.early_micro_batches = 4;
  report.sampler_mismatch = {.sum = 0.3, .largest = 0.2, .tokens = 3};
  return report;
}

TEST(MetricTableTest, EveryMetricHasANameOfItsOwnEverywhere) {
  std::set<std::string> paths;
  std::set<std::string> tags;
  std::set<std::string> series;
  for (const StepMetric& metric : StepMetrics()) {
    EXPECT_TRUE(paths.insert(metric.path).second) << metric.path;
    EXPECT_TRUE(tags.insert(metric.tag).second) << metric.tag;
    std::string labels;
    for (const auto& [name, value] : metric.labels) labels += name + value;
    EXPECT_TRUE(series.insert(metric.prometheus + labels).second)
        << metric.prometheus;
    EXPECT_TRUE(absl::StartsWith(metric.prometheus, "dapd_trainer_"));
    EXPECT_EQ(absl::EndsWith(metric.prometheus, "_total"),
              metric.kind == MetricKind::kCounter)
        << metric.prometheus;
    EXPECT_TRUE(absl::EndsWith(metric.help, ".")) << metric.help;
    EXPECT_EQ(absl::StrContains(metric.path, "*"),
              absl::StrContains(metric.tag, "*"));
    EXPECT_EQ(metric.write != nullptr, metric.rule != RankRule::kRank0);
  }
}

TEST(MetricTableTest, AStepsLineHoldsEveryRowAtItsPath) {
  const nlohmann::ordered_json line = StepLine(MakeReport());
  EXPECT_EQ(line.begin().key(), "step");
  EXPECT_EQ(line.at("step"), 3);
  EXPECT_EQ(line.at("adapter_digest"), "abc");
  EXPECT_EQ(line.at("loss"), 0.25);
  EXPECT_EQ(line.at("terms").at("a/b").at("value"), 0.5);
  EXPECT_EQ(line.at("terms").at("c").at("tokens"), 9);
  EXPECT_EQ(line.at("payload_bytes").dump(), "1099511627776");
  EXPECT_EQ(line.at("early_micro_batches").dump(), "4");
  EXPECT_EQ(line.at("sampler_mismatch").at("mean"), 0.3 / 3);
  EXPECT_EQ(line.at("step_seconds"), 2.5);
  EXPECT_EQ(line.at("seconds").dump(),
            "{\"rollout\":0.0,\"score\":0.0,\"train\":2.0,\"optimizer\":0.0,"
            "\"publish\":0.5}");
}

TEST(MetricTableTest, WhatAStepCouldNotMeasureItsLineLacks) {
  StepReport report = MakeReport();
  EXPECT_FALSE(StepLine(report).at("rollout").contains("correct_fraction"));
  report.correct_fraction = 0.0;
  EXPECT_EQ(StepLine(report).at("rollout").at("correct_fraction"), 0.0);
}

TEST(MetricTableTest, ATermsTeachersHaveAPlaceAndATagEach) {
  StepReport report = MakeReport();
  report.objective.terms[0].by_teacher = {
      {"code", {.unclipped = 0.5, .tokens = 3}},
      {"math", {.unclipped = 0.75, .tokens = 9}}};
  const nlohmann::ordered_json line = StepLine(report);
  EXPECT_EQ(line.at("terms").at("a/b").at("teachers").dump(),
            "{\"code\":{\"unclipped\":0.5,\"tokens\":3},"
            "\"math\":{\"unclipped\":0.75,\"tokens\":9}}");
  EXPECT_FALSE(line.at("terms").at("c").contains("teachers"));
  const StepMetric& metric = StepMetricAt("terms/*/teachers/*/unclipped");
  EXPECT_TRUE(metric.IsByTeacher());
  EXPECT_FALSE(StepMetricAt("terms/*/unclipped").IsByTeacher());
  std::vector<std::string> tags;
  for (const MetricValue& value : metric.read(report)) {
    tags.push_back(metric.TagOf(value));
  }
  EXPECT_EQ(
      tags,
      (std::vector<std::string>{"teacher_kl/a/b/code", "teacher_kl/a/b/math"}));
}

TEST(MetricTableTest, ReplayWritesWhatIsKnownWithoutServices) {
  const StepReport report = MakeReport();
  const nlohmann::ordered_json line =
      ObjectiveLine(3, report.objective, report.optimizer);
  const nlohmann::ordered_json whole = StepLine(report);
  for (const char* key :
       {"step", "loss", "gradient_norm", "learning_rate", "terms"}) {
    EXPECT_EQ(line.at(key), whole.at(key)) << key;
  }
  EXPECT_EQ(line.size(), 5U);
  EXPECT_EQ(ToJson(report.objective).at("terms"), whole.at("terms"));
}

TEST(MetricTableTest, RanksAreAddedUpAsTheirRowsSay) {
  StepReport rank0 = MakeReport();
  StepReport rank1 = MakeReport();
  rank1.payload_bytes = 5;
  rank1.early_micro_batches = 9;
  rank1.teacher_seconds = 0.1;
  rank1.sampler_mismatch = {.sum = 0.1, .largest = 0.1, .tokens = 1};
  ASSERT_TRUE(MergeRank(MetricsOfRank(rank1), &rank0).ok());
  EXPECT_EQ(rank0.payload_bytes, (int64_t{1} << 40) + 5);
  EXPECT_EQ(rank0.teacher_seconds, 0.1);
  EXPECT_EQ(rank0.early_micro_batches, 4) << "rank 0's";
  EXPECT_EQ(rank0.sampler_mismatch.tokens, 4);
  EXPECT_EQ(rank0.sampler_mismatch.largest, 0.2);
  EXPECT_EQ(rank0.sampler_mismatch.mean(), (0.3 + 0.1) / 4);
}

TEST(MetricTableTest, ARankThatMeasuresOtherThingsIsRefused) {
  StepReport report = MakeReport();
  auto other = MetricsOfRank(report);
  other.erase("payload_bytes");
  EXPECT_TRUE(absl::IsDataLoss(MergeRank(other, &report)));
  other["payload"] = 1;
  EXPECT_TRUE(absl::IsDataLoss(MergeRank(other, &report)));
  EXPECT_EQ(report.payload_bytes, int64_t{1} << 40);
}

TEST(MetricTableTest, TheListInTheDocumentIsUpToDate) {
  const auto document =
      ReadFile(DAPD_SOURCE_DIR "/docs/watching.md", 1 << 20).value();
  EXPECT_THAT(document, HasSubstr(MetricReference()))
      << "docs/watching.md has to hold:\n\n"
      << MetricReference();
}

TEST(SamplerMismatchTest, IsTheMeanAndTheLargestDifference) {
  const std::vector<float> trainer = {-1.0F, -2.0F, -3.0F};
  const std::vector<float> sampler = {-1.5F, -2.0F, -2.75F};
  const SamplerMismatch mismatch = CompareLogprobs(trainer, sampler);
  EXPECT_EQ(mismatch.tokens, 3);
  EXPECT_EQ(mismatch.largest, 0.5);
  EXPECT_EQ(mismatch.mean(), 0.25);
}

TEST(SamplerMismatchTest, AnAnswerWhoseLogProbabilitiesAreUnknownDoesNotCount) {
  const std::vector<float> trainer = {-1.0F, -2.0F};
  EXPECT_EQ(CompareLogprobs(trainer, {}).tokens, 0);
  EXPECT_EQ(CompareLogprobs(trainer, {}).mean(), 0.0);
}

}  // namespace
}  // namespace dapd
