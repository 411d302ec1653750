#include "common/metrics/metrics_registry.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MetricsRegistryTest, TheBuildIsDescribedByWhatItIsGiven) {
  MetricsRegistry registry("test", "", {{"driver", "580.82.07"}});
  EXPECT_THAT(registry.Expose(),
              AllOf(HasSubstr("dapd_build_info{driver=\"580.82.07\","),
                    HasSubstr("service=\"test\",version=\"")));
}

TEST(MetricsRegistryTest, MetricsAppearInTheExposition) {
  MetricsRegistry registry("test");
  registry.AddCounter("dapd_things_total", "Things.", {{"kind", "a"}}).Add(2);
  registry.AddGauge("dapd_level", "Level.").Set(1.5);
  registry.AddHistogram("dapd_wait_seconds", "Wait.", {0.1, 1.0}).Observe(0.5);
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("dapd_things_total{kind=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("dapd_level 1.5"));
  EXPECT_THAT(text, HasSubstr("dapd_wait_seconds_bucket{le=\"1\"} 1"));
  EXPECT_THAT(text, HasSubstr("dapd_build_info{"));
  EXPECT_THAT(text, HasSubstr("service=\"test\""));
  EXPECT_THAT(text, HasSubstr("flavour=\"c"));
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes"));
}

TEST(MetricsRegistryTest, AskingTwiceGivesTheSameMetric) {
  MetricsRegistry registry("test");
  registry.AddCounter("dapd_things_total", "Things.").Add(1);
  registry.AddCounter("dapd_things_total", "Things.").Add(1);
  EXPECT_THAT(registry.Expose(), HasSubstr("dapd_things_total 2"));
}

TEST(MetricsRegistryTest, EverySeriesNamesTheRun) {
  MetricsRegistry registry("test", "my-run");
  registry.AddCounter("dapd_things_total", "Things.", {{"kind", "a"}});
  registry.AddGauge("dapd_level", "Level.");
  registry.AddHistogram("dapd_wait_seconds", "Wait.", {1.0}).Observe(0.5);
  std::istringstream text(registry.Expose());
  int series = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    EXPECT_THAT(line, HasSubstr("run=\"my-run\""));
    ++series;
  }
  EXPECT_GE(series, 8);
}

TEST(MetricsRegistryTest, WhatIsLookedUpIsLookedUpAtEveryExpose) {
  MetricsRegistry registry("test");
  const Gauge level = registry.AddGauge("dapd_level", "Level.");
  int value = 3;
  registry.OnExpose([&] { level.Set(value); });
  EXPECT_THAT(registry.Expose(), HasSubstr("dapd_level 3"));
  value = 4;
  EXPECT_THAT(registry.Expose(), HasSubstr("dapd_level 4"));
}

TEST(StepBucketsTest, GoInStepsOfOneTwoFive) {
  EXPECT_EQ(StepBuckets(0.01, 0.3),
            (std::vector<double>{0.01, 0.02, 0.05, 0.1, 0.2, 0.5}));
}

}  // namespace
}  // namespace dapd
