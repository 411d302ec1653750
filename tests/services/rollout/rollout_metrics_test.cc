#include "services/rollout/rollout_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

TEST(RolloutMetricsTest, MemoryIsWhatItIsNowAndRestartsAddUp) {
  MetricsRegistry registry("rollout");
  const RolloutObserver observer = MakeRolloutMetrics(registry, /*slots=*/4);
  EXPECT_THAT(registry.Expose(), HasSubstr("\ndapd_rollout_restarts_total 0"));
  observer.on_kv_use({.bytes = 700, .limit_bytes = 1000, .restarts = 2});
  observer.on_kv_use({.bytes = 300, .limit_bytes = 1000, .restarts = 5});
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_kv_memory_bytes 300"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_kv_memory_limit_bytes 1000"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_restarts_total 5"));
}

}  // namespace
}  // namespace dapd
