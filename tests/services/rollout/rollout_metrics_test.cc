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

TEST(RolloutMetricsTest, AnAnswerOfTensOfThousandsOfTokensHasABucket) {
  MetricsRegistry registry("rollout");
  const RolloutObserver observer = MakeRolloutMetrics(registry, /*slots=*/4);
  observer.on_request({.finish_reason = FinishReason::kLength,
                       .prompt_tokens = 100,
                       .answer_tokens = 40000,
                       .seconds_to_first_token = 1500.0,
                       .seconds = 4000.0});
  const std::string text = registry.Expose();
  for (const char* bucket :
       {"\ndapd_rollout_answer_tokens_bucket{le=\"50000\"} 1",
        "\ndapd_rollout_time_to_first_token_seconds_bucket{le=\"2000\"} 1",
        "\ndapd_rollout_request_duration_seconds_bucket{le=\"5000\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(bucket));
  }
}

}  // namespace
}  // namespace dapd
