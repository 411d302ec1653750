#include "services/trainer/record/claim_rise.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Evaluations in which claims have these probabilities, every 50 steps.
std::map<std::string, EvaluationReport> Evaluations(
    const std::vector<Interval>& claims) {
  std::map<std::string, EvaluationReport> evaluations;
  for (size_t i = 0; i < claims.size(); ++i) {
    const auto step = static_cast<int64_t>(50 * i);
    evaluations[i == 0 ? "before" : NameWithinRun(step)] = {
        .policy_version = step, .claims = ClaimFigures{.none = claims[i]}};
  }
  return evaluations;
}

TEST(ClaimRiseTest, TheNewestEvaluationIsComparedWithTheFirst) {
  const auto evaluations = Evaluations(
      {{0.01, 0.005, 0.015}, {0.5, 0.4, 0.6}, {0.02, 0.016, 0.024}});
  const auto rise = FindClaimRise(evaluations);
  ASSERT_TRUE(rise.has_value());
  EXPECT_EQ(rise->first_step, 0);
  EXPECT_EQ(rise->step, 100);
  EXPECT_EQ(rise->first.mean, 0.01);
  EXPECT_EQ(rise->now.mean, 0.02);
  EXPECT_THAT(Describe(*rise),
              HasSubstr("0.0100 [0.0050, 0.0150] after step 0, 0.0200 "
                        "[0.0160, 0.0240] after step 100"));
}

TEST(ClaimRiseTest, ItIsQuietUnlessClaimsAreFarAboveTheFirst) {
  const Interval first = {0.01, 0.005, 0.015};
  EXPECT_FALSE(FindClaimRise({}).has_value());
  EXPECT_FALSE(FindClaimRise(Evaluations({first})).has_value());
  EXPECT_FALSE(FindClaimRise(Evaluations({first, first})).has_value());
  EXPECT_FALSE(
      FindClaimRise(Evaluations({first, {0.03, 0.014, 0.05}})).has_value())
      << "the intervals overlap";
  const Interval narrow = {0.01, 0.0099, 0.0101};
  EXPECT_FALSE(
      FindClaimRise(Evaluations({narrow, {0.0149, 0.0148, 0.015}})).has_value())
      << "less than half more";
  EXPECT_TRUE(FindClaimRise(Evaluations({narrow, {0.0151, 0.0149, 0.0152}}))
                  .has_value());
}

TEST(ClaimRiseTest, EvaluationsThatDidNotMeasureClaimsAreSkipped) {
  auto evaluations = Evaluations(
      {{0.01, 0.005, 0.015}, {0.01, 0.005, 0.015}, {0.5, 0.4, 0.6}});
  evaluations["before"].claims.reset();
  evaluations["after"] = {.policy_version = 150};
  const auto rise = FindClaimRise(evaluations);
  ASSERT_TRUE(rise.has_value());
  EXPECT_EQ(rise->first_step, 50);
  EXPECT_EQ(rise->step, 100);
}

}  // namespace
}  // namespace dapd
