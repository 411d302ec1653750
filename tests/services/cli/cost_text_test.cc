#include "services/cli/cost_text.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

class CostTextTest : public testing::Test {
 protected:
  CostTextTest() {
    model_.vocab_size = 1000;
    model_.hidden_size = 1024;
    model_.intermediate_size = 4096;
    model_.num_layers = 8;
    model_.num_heads = 8;
    model_.num_kv_heads = 4;
    model_.head_dim = 128;
  }

  Config config_;
  ModelConfig model_;
};

TEST_F(CostTextTest, LayersAreSplitAsFarAsTheModelAllows) {
  const std::vector<std::string> lines =
      MemoryText(config_, model_, PlanMemory(config_, model_));
  ASSERT_THAT(lines, SizeIs(5)) << "three roles, and two or four ranks";
  EXPECT_THAT(lines[0], StartsWith("rollout "));
  EXPECT_THAT(lines[4], HasSubstr("GiB a rank if 4 split every layer"));
}

TEST_F(CostTextTest, ATimeIsPredictedOnlyAtGivenRates) {
  const SampleLengths lengths = LongestSamples(config_);
  const auto has_time = Contains(StartsWith("  one by one"));
  EXPECT_THAT(StepCostText(config_, model_, lengths, {}), Not(has_time));
  EXPECT_THAT(StepCostText(config_, model_, lengths, {400, 2500, 10}),
              has_time);
}

TEST_F(CostTextTest, DevicesAreSplitOrAreTooFew) {
  const SampleLengths lengths = LongestSamples(config_);
  const auto split = SplitText(config_, model_, lengths, {.count = 8}, {}, {});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(*split, StartsWith("split            of 8: ranks "));
  const auto none = SplitText(config_, model_, lengths, {.count = 1}, {}, {});
  EXPECT_EQ(ExitCodeOf(none.status()), ExitCode::kConfig);
  EXPECT_THAT(std::string(none.status().message()), StartsWith("--gpus: "));
}

}  // namespace
}  // namespace dapd
