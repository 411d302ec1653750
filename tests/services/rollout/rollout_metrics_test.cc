#include "services/rollout/rollout_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

TEST(RolloutMetricsTest, EachNumberIsThereUnderItsOwnName) {
  MetricsRegistry registry("rollout");
  const RolloutObserver observer = MakeRolloutMetrics(registry, /*slots=*/4);
  observer.on_step(/*new_tokens=*/3, /*seconds=*/0.25);
  observer.on_load(/*running=*/5, /*waiting=*/6);
  observer.on_policy({true, 7, "digest"});
  for (const FinishReason reason : {FinishReason::kEos, FinishReason::kNone}) {
    observer.on_request({.finish_reason = reason,
                         .prompt_tokens = 8,
                         .answer_tokens = 9,
                         .seconds_to_first_token = 0.5,
                         .seconds = 1.5});
  }
  const std::string text = registry.Expose();
  for (const char* line : {"dapd_rollout_generated_tokens_total 3",
                           "dapd_rollout_decode_step_duration_seconds_sum 0.25",
                           "dapd_rollout_requests_running 5",
                           "dapd_rollout_requests_waiting 6",
                           "dapd_rollout_requests_waiting_limit 64",
                           "dapd_rollout_slots 4",
                           "dapd_rollout_policy_version 7",
                           // A failed request has neither lengths nor times.
                           "dapd_rollout_requests_total{outcome=\"eos\"} 1",
                           "dapd_rollout_requests_total{outcome=\"length\"} 0",
                           "dapd_rollout_requests_total{outcome=\"failed\"} 1",
                           "dapd_rollout_prompt_tokens_total 8",
                           "dapd_rollout_answer_tokens_sum 9",
                           "dapd_rollout_time_to_first_token_seconds_sum 0.5",
                           "dapd_rollout_request_duration_seconds_sum 1.5"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

TEST(RolloutMetricsTest, MemoryIsWhatItIsNowAndItsCostAddsUp) {
  MetricsRegistry registry("rollout");
  const RolloutObserver observer = MakeRolloutMetrics(registry, /*slots=*/4);
  EXPECT_THAT(registry.Expose(), HasSubstr("\ndapd_rollout_restarts_total 0"));
  observer.on_kv_use({.bytes = 700, .limit_bytes = 1000, .restarts = 2});
  observer.on_kv_use(
      {.bytes = 300,
       .limit_bytes = 1000,
       .restarts = 5,
       .cost = {.recomputed_tokens = 7, .swaps = 2, .swapped_bytes = 600},
       .host_bytes = 400});
  const std::string text = registry.Expose();
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_kv_memory_bytes 300"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_kv_memory_limit_bytes 1000"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_restarts_total 5"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_swaps_total 2"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_swapped_bytes_total 600"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_recomputed_tokens_total 7"));
  EXPECT_THAT(text, HasSubstr("\ndapd_rollout_swapped_kv_memory_bytes 400"));
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
