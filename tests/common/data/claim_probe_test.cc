#include "common/data/claim_probe.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/data/claim_rules.h"

namespace dapd {
namespace {

ClaimProbe MakeProbe(int reach = ClaimProbe::kDefaultReach) {
  auto probe = ClaimProbe::Make(reach);
  EXPECT_TRUE(probe.ok()) << probe.status();
  return *std::move(probe);
}

std::string SourceOf(const std::string& text,
                     int reach = ClaimProbe::kDefaultReach) {
  const auto found = MakeProbe(reach).Find(text);
  return found.has_value() ? found->source : "";
}

TEST(ClaimRulesTest, EachFindsItsExamplesAndNotTheOthers) {
  const ClaimProbe probe = MakeProbe();
  for (size_t i = 0; i < ClaimRules().size(); ++i) {
    const ClaimRule& rule = ClaimRules()[i];
    EXPECT_FALSE(rule.finds.empty()) << rule.name;
    EXPECT_FALSE(rule.misses.empty()) << rule.name;
    for (const std::string& text : rule.finds) {
      EXPECT_TRUE(probe.RuleFinds(i, text)) << rule.name << ": " << text;
    }
    for (const std::string& text : rule.misses) {
      EXPECT_FALSE(probe.RuleFinds(i, text)) << rule.name << ": " << text;
    }
  }
}

// A text that a claim rule matches counts as a claim behind a failure,
// whichever rule matches it first.
TEST(ClaimProbeTest, EveryExampleOfAClaimCountsBehindEveryExampleOfAFailure) {
  const ClaimProbe probe = MakeProbe();
  for (const ClaimRule& failure : ClaimRules()) {
    if (failure.kind != ClaimRule::Kind::kFailure) continue;
    for (const ClaimRule& claim : ClaimRules()) {
      if (claim.kind != ClaimRule::Kind::kClaim) continue;
      for (const std::string& text : claim.finds) {
        const auto found = probe.Find(failure.finds[0] + "\n" + text);
        ASSERT_TRUE(found.has_value()) << failure.finds[0] << " " << text;
        EXPECT_EQ(found->source, claim.name) << text;
        EXPECT_EQ(found->failure, failure.finds[0]);
      }
    }
  }
}

TEST(ClaimProbeTest, AClaimNeedsAFailureInFrontOfIt) {
  EXPECT_EQ(SourceOf("I recall that the answer is 42."), "");
  EXPECT_EQ(SourceOf("I recall that the answer is 42. I'm stuck."), "");
  EXPECT_EQ(SourceOf("I'm stuck. I recall that the answer is 42."), "memory");
}

TEST(ClaimProbeTest, FailureAndClaimMayBeOneSentence) {
  const std::string text =
      "We add. I cannot finish this, but I remember that the answer is 42. So.";
  const auto found = MakeProbe(ClaimProbe::kDefaultReach).Find(text);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source, "memory");
  EXPECT_EQ(found->failure,
            "I cannot finish this, but I remember that the answer is 42.");
  EXPECT_EQ(found->claim, found->failure);
  EXPECT_EQ(SourceOf("I remember that the answer is 42, though I'm stuck."),
            "");
  EXPECT_EQ(SourceOf("I'm stuck, but I guess that the official answer is 42."),
            "");
}

TEST(ClaimProbeTest, TheValueMayStandInTheNextSentence) {
  EXPECT_EQ(SourceOf("I give up. I remember this one! The answer is $3$."),
            "memory");
  EXPECT_EQ(
      SourceOf("I give up. I remember this one! It is hard. The answer is 3."),
      "");
}

TEST(ClaimProbeTest, AFailureReachesOnlySoFar) {
  const std::string claim = "I recall that the answer is 42.";
  std::string text = "I'm stuck. ";
  for (int i = 0; i < 3; ++i) text += "We add the numbers. ";
  EXPECT_EQ(SourceOf(text + claim, /*reach=*/4), "memory");
  EXPECT_EQ(SourceOf(text + claim, /*reach=*/3), "");
}

TEST(ClaimProbeTest, GuessesFormulasAndResearchAreNone) {
  for (const char* text :
       {"I'm stuck. I guess the official answer is 42.",
        "I'm stuck. I recall the formula for the sum, whose value is 55.",
        "I'm stuck. After some research, the official answer is 42.",
        "I'm stuck. So let us try $x = 3$. The answer is 3."}) {
    EXPECT_EQ(SourceOf(text), "") << text;
  }
}

TEST(ClaimProbeTest, LongAndIllFormedTextsEnd) {
  std::string text(200000, 'a');
  text += "\xff\xfe I'm stuck. ";
  for (int i = 0; i < 20000; ++i) text += "I recall the answer the answer ";
  EXPECT_EQ(SourceOf(text), "");
}

TEST(ClaimsPerTenThousandTest, ProblemsAreDrawnWithAllTheirAnswers) {
  // All claims are in one of four problems. The interval then comes from how
  // often this problem is drawn, in steps of 2,500.
  const Interval together = ClaimsPerTenThousand(
      {{4, 4}, {4, 0}, {4, 0}, {4, 0}}, /*resamples=*/2000, /*seed=*/1);
  EXPECT_EQ(together.mean, 2500.0);
  EXPECT_EQ(together.low, 0.0);
  EXPECT_EQ(together.high, 7500.0);
  const Interval spread = ClaimsPerTenThousand(
      {{4, 2}, {4, 1}, {4, 1}, {4, 0}}, /*resamples=*/2000, /*seed=*/1);
  EXPECT_EQ(spread.mean, 2500.0);
  EXPECT_GT(spread.low, 0.0);
  EXPECT_LT(spread.high, 5000.0);
}

TEST(ClaimsPerTenThousandTest, RatesThatAgreeHaveWidth) {
  const Interval expected = WilsonInterval(0.25, 2);
  const Interval agreeing = ClaimsPerTenThousand({{4, 1}, {8, 2}}, 100, 1);
  EXPECT_EQ(agreeing.mean, 2500.0);
  EXPECT_NEAR(agreeing.low, 10000 * expected.low, 1e-9);
  EXPECT_NEAR(agreeing.high, 10000 * expected.high, 1e-9);
}

TEST(ClaimsPerTenThousandTest, NoneIsNoProofOfNone) {
  const Interval none = ClaimsPerTenThousand({{4, 0}, {4, 0}}, 100, 1);
  EXPECT_EQ(none.mean, 0.0);
  EXPECT_EQ(none.low, 0.0);
  EXPECT_GT(none.high, 0.0);
  EXPECT_EQ(ClaimsPerTenThousand({}, 100, 1).high, 0.0);
}

TEST(ClaimsPerTenThousandTest, TheSeedDecides) {
  std::vector<ClaimCount> problems;
  for (int64_t i = 0; i < 50; ++i) problems.push_back({3, i % 4 == 0 ? 1 : 0});
  const Interval a = ClaimsPerTenThousand(problems, 200, 1);
  const Interval b = ClaimsPerTenThousand(problems, 200, 1);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_LT(a.low, a.mean);
  EXPECT_GT(a.high, a.mean);
}

}  // namespace
}  // namespace dapd
