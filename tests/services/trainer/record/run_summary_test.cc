#include "services/trainer/record/run_summary.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::StartsWith;

TEST(ClosingTextTest, ARunThatWentOnSaysWhichStepsTookTheTime) {
  const std::string folder = "runs/a";
  const std::map<std::string, double> seconds = {{"rollout", 300.0}};
  const std::map<std::string, EvaluationReport> evaluations;
  RunSummary summary{.folder = folder,
                     .steps = 200,
                     .seconds = 60.0,
                     .seconds_by_phase = seconds,
                     .evaluations = evaluations};
  EXPECT_THAT(ClosingText(summary),
              StartsWith("done: 200 steps in 60 s (rollout 300 s)\n"));
  summary.start_step = 150;
  EXPECT_THAT(ClosingText(summary),
              StartsWith("done: 200 steps, those after step 150 in 60 s "
                         "(all: rollout 300 s)\n"));
}

}  // namespace
}  // namespace dapd
