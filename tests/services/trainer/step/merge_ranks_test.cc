#include "services/trainer/step/merge_ranks.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Returns rank 0's status if rank 1 ends the step with weights of `digest`.
absl::Status MergeWith(const std::string& digest, StepReport* report) {
  absl::Status merged;
  RunThreadRanks(2, [&](Collective& collective) {
    StepReport own{.step = 3, .scored_tokens = 7};
    const bool is_first = collective.rank() == 0;
    absl::Status status =
        MergeReports(collective, is_first ? "digest" : digest, &own);
    if (!is_first) {
      EXPECT_TRUE(status.ok()) << status;
      return;
    }
    merged = std::move(status);
    *report = own;
  });
  return merged;
}

TEST(MergeReportsTest, RanksThatEndAStepInOtherWeightsEndTheRun) {
  StepReport report;
  ASSERT_TRUE(MergeWith("digest", &report).ok());
  EXPECT_EQ(report.scored_tokens, 14);
  const absl::Status status = MergeWith("another", &report);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trainer rank 1 ended step 3 with different weights"));
}

}  // namespace
}  // namespace dapd
