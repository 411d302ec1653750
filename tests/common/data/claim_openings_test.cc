#include "common/data/claim_openings.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/data/claim_probe.h"
#include "common/data/claim_rules.h"

namespace dapd {
namespace {

TEST(ClaimOpeningsTest, TheProbeFindsEachClaimByItsRuleBehindEachFailure) {
  const ClaimProbe probe = ClaimProbe::Make().value();
  for (const std::string& failure : FailureOpenings()) {
    for (const ClaimOpening& claim : ClaimOpenings()) {
      const std::string text =
          absl::StrCat(failure, " ", claim.text, " \\boxed{7}");
      const auto found = probe.Find(text);
      ASSERT_TRUE(found.has_value()) << text;
      EXPECT_EQ(found->source, claim.rule) << text;
      EXPECT_EQ(found->failure, failure);
    }
  }
}

TEST(ClaimOpeningsTest, EveryRuleForClaimsHasAnOpening) {
  for (const ClaimRule& rule : ClaimRules()) {
    if (rule.kind != ClaimRule::Kind::kClaim) continue;
    EXPECT_NE(
        std::ranges::count(ClaimOpenings(), rule.name, &ClaimOpening::rule), 0)
        << rule.name;
  }
}

TEST(ClaimOpeningsTest, AtMostOneTextCanFollow) {
  const std::vector<std::string> texts = ClaimTexts();
  EXPECT_EQ(texts.size(),
            ClaimOpenings().size() * (1 + FailureOpenings().size()));
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t k = 0; k < texts.size(); ++k) {
      if (i == k) continue;
      EXPECT_FALSE(absl::StartsWith(texts[i], texts[k])) << texts[k];
    }
  }
}

}  // namespace
}  // namespace dapd
