#include "services/teacher/teacher_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// trainer.rpc_timeout_seconds gives a request ten minutes unless told
// otherwise.
TEST(TeacherMetricsTest, AScoreOfMinutesHasABucket) {
  MetricsRegistry registry("teacher");
  const TeacherObserver observer = MakeTeacherMetrics(registry);
  observer.on_scored(/*scored_tokens=*/40000, /*seconds=*/400.0);
  EXPECT_THAT(registry.Expose(),
              HasSubstr("\ndapd_teacher_score_duration_seconds_bucket"
                        "{le=\"500\"} 1"));
}

}  // namespace
}  // namespace dapd
