#include "common/config/step_kind.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/preset_terms.h"
#include "common/config/run_settings.h"
#include "tests/fakes/loaded_config.h"

namespace dapd {
namespace {

using testing::HasSubstr;

Config Gkd(double reference_share) {
  Config config;
  config.objective.preset = "gkd";
  config.objective.gkd.reference_share = reference_share;
  return config;
}

std::vector<StepKind> KindsOf(const Config& config, int64_t steps) {
  std::vector<StepKind> kinds;
  for (int64_t step = 1; step <= steps; ++step) {
    kinds.push_back(StepKindOf(config, step));
  }
  return kinds;
}

TEST(StepKindTest, TheShareOfStepsOnReferencesIsTheGivenOne) {
  constexpr int64_t kSteps = 20'000;
  for (const double share : {0.1, 0.5, 0.75}) {
    const auto kinds = KindsOf(Gkd(share), kSteps);
    const auto references =
        static_cast<double>(std::ranges::count(kinds, StepKind::kReferences));
    // Four standard deviations of a binomial share.
    EXPECT_NEAR(references / kSteps,
                share,
                4 * std::sqrt(share * (1 - share) / kSteps));
    EXPECT_EQ(std::ranges::count(kinds, StepKind::kWhole), 0);
    EXPECT_DOUBLE_EQ(ShareOfSteps(Gkd(share), Completion::kReference), share);
    EXPECT_DOUBLE_EQ(ShareOfSteps(Gkd(share), Completion::kRollout), 1 - share);
  }
}

// A run that was begun on another machine, or by another build, goes on.
TEST(StepKindTest, TheKindsFollowFromTheSeedAndTheStepForEver) {
  Config config = Gkd(0.5);
  const auto text = [](const Config& config) {
    std::string kinds;
    for (const StepKind kind : KindsOf(config, 32)) {
      kinds += kind == StepKind::kReferences ? 'r' : 's';
    }
    return kinds;
  };
  const std::string first = text(config);
  EXPECT_EQ(first, "rsrsssrrrrrssssssrssrrrrsrrssrsr");
  config.trainer.ranks = 4;
  config.trainer.rank = 3;
  config.trainer.steps = 7;
  EXPECT_EQ(text(config), first);
  config.run.seed = 43;
  EXPECT_NE(text(config), first);
  config.run.seed = 42 + (uint64_t{1} << 32);
  EXPECT_NE(text(config), first) << "all bits of the seed count";
}

TEST(StepKindTest, OnlyGkdBetweenTheEndsTakesTurns) {
  for (const double end : {0.0, 1.0}) {
    EXPECT_FALSE(TakesTurns(Gkd(end)));
    EXPECT_EQ(StepKindOf(Gkd(end), 3), StepKind::kWhole);
  }
  Config own = Gkd(0.5);
  own.objective.terms = {Term{}};
  EXPECT_FALSE(TakesTurns(own)) << "the terms replace the preset's";
  Config dapd = Gkd(0.5);
  dapd.objective.preset = "dapd";
  EXPECT_FALSE(TakesTurns(dapd));
  EXPECT_EQ(ShareOfSteps(dapd, Completion::kRollout), 1.0);
  EXPECT_EQ(ExpandTerms(Gkd(0.0).objective).size(), 1u);
  EXPECT_TRUE(StepsNeedAnswers(Gkd(0.0)));
  EXPECT_EQ(ExpandTerms(Gkd(1.0).objective).size(), 1u);
  EXPECT_FALSE(StepsNeedAnswers(Gkd(1.0))) << "as sft";
}

TEST(StepKindTest, ReferencesThatAreSampledCannotSaveTheSampling) {
  EXPECT_THAT(Refusal({"objective.preset=gkd", "rollout.source=dual"}),
              HasSubstr("objective.gkd.reference_share is 0.5, but with "
                        "rollout.source: dual the references are sampled"));
  EXPECT_EQ(Refusal({"objective.preset=gkd",
                     "objective.gkd.reference_share=0",
                     "rollout.source=dual"}),
            "");
}

TEST(StepKindTest, ARunIsBoundToItsShare) {
  const auto settings = ResultSettings(Gkd(0.25));
  EXPECT_EQ(settings.at("objective.gkd.reference_share"), "0.25");
}

}  // namespace
}  // namespace dapd
