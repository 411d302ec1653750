#include "services/teacher/teacher_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// By default trainer.rpc_timeout_seconds gives a request ten minutes.
TEST(TeacherMetricsTest, AScoreOfMinutesHasABucket) {
  MetricsRegistry registry("teacher");
  const TeacherObserver observer = MakeTeacherMetrics(registry);
  observer.on_scored(/*scored_tokens=*/40000, /*seconds=*/400.0);
  EXPECT_THAT(registry.Expose(),
              HasSubstr("\ndapd_teacher_score_duration_seconds_bucket"
                        "{le=\"500\"} 1"));
}

TEST(TeacherMetricsTest, EachNumberIsThereUnderItsOwnName) {
  MetricsRegistry registry("teacher");
  const TeacherObserver observer = MakeTeacherMetrics(registry);
  observer.on_request("ok");
  observer.on_load(/*waiting=*/3);
  observer.on_scored(/*scored_tokens=*/4, /*seconds=*/0.25);
  observer.on_work({.computed_tokens = 5, .reused_tokens = 6});
  observer.on_payload(/*bytes=*/7);
  observer.on_ahead(/*tokens=*/8, /*seconds=*/0.5);
  observer.on_open_prefixes(9);
  observer.on_policy(WeightSet::kEma, {true, 10, "digest"});
  const std::string text = registry.Expose();
  for (const char* line :
       {"dapd_teacher_requests_total{outcome=\"ok\"} 1",
        "dapd_teacher_requests_total{outcome=\"failed\"} 0",
        "dapd_teacher_requests_waiting 3",
        "dapd_teacher_requests_waiting_limit 64",
        "dapd_teacher_scored_tokens_total 4",
        "dapd_teacher_score_duration_seconds_sum 0.25",
        "dapd_teacher_view_tokens_total{source=\"computed\"} 5",
        "dapd_teacher_view_tokens_total{source=\"reused\"} 6",
        "dapd_teacher_payload_bytes_total 7",
        "dapd_teacher_prefix_tokens_total 8",
        "dapd_teacher_prefix_seconds_total 0.5",
        "dapd_teacher_open_prefixes 9",
        "dapd_teacher_policy_version{weights=\"ema\"} 10"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

}  // namespace
}  // namespace dapd
