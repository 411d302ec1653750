#include "services/trainer/step/answer_rules.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

AnswerRules RulesOf(ReferenceSource source,
                    Unverified unverified = Unverified::kFirst) {
  Config config;
  config.rollout.source = source;
  config.rollout.unverified = unverified;
  return MakeAnswerRules(config, /*step=*/1);
}

// Makes answers of a single token; `tokens` has the token of each attempt.
AnswersByAttempt AnswersOf(const std::vector<int32_t>& tokens) {
  AnswersByAttempt answers;
  for (size_t i = 0; i < tokens.size(); ++i) {
    answers[static_cast<int64_t>(i)].ids = {tokens[i]};
  }
  return answers;
}

TEST(AnswerRulesTest, AGivenReferenceTakesOneAnswer) {
  const AnswerRules rules = RulesOf(ReferenceSource::kGiven);
  EXPECT_THAT(WantedAttempts(rules, {}), ElementsAre(0));
  EXPECT_THAT(WantedAttempts(rules, AnswersOf({5})), IsEmpty());
  EXPECT_EQ(ChooseReference(rules, AnswersOf({5}), {})->attempt, 0);
}

TEST(AnswerRulesTest, TheConfigurationSaysHowManyAnswersThereAre) {
  Config config;
  config.rollout.group_size = 4;
  config.objective.sdpo.feedback = FeedbackRule::kAlways;
  const AnswerRules rules = MakeAnswerRules(config, /*step=*/1);
  EXPECT_EQ(rules.group_size, 4);
  EXPECT_EQ(rules.feedback, FeedbackRule::kAlways);
  config.objective.preset = "sft";
  EXPECT_THAT(WantedAttempts(MakeAnswerRules(config, /*step=*/1), {}),
              IsEmpty());
}

TEST(AnswerRulesTest, AStepOnReferencesTakesNoAnswer) {
  Config config;
  config.objective.preset = "gkd";
  int64_t on_references = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    const AnswerRules rules = MakeAnswerRules(config, step);
    EXPECT_NE(rules.needs_answers, rules.trains_references);
    EXPECT_EQ(WantedAttempts(rules, {}).empty(), rules.trains_references);
    on_references += rules.trains_references;
  }
  EXPECT_GT(on_references, 0);
  EXPECT_LT(on_references, 20);
}

TEST(AnswerRulesTest, ADualAnswerIsSampledAgainWhileItEqualsTheFirst) {
  const AnswerRules rules = RulesOf(ReferenceSource::kDual);
  EXPECT_THAT(WantedAttempts(rules, {}), ElementsAre(0, 1));
  EXPECT_THAT(WantedAttempts(rules, AnswersOf({5})), ElementsAre(1));
  EXPECT_THAT(WantedAttempts(rules, AnswersOf({5, 6})), IsEmpty());
  EXPECT_EQ(ChooseReference(rules, AnswersOf({5, 6}), {})->attempt, 1);
  EXPECT_THAT(WantedAttempts(rules, AnswersOf({5, 5})), ElementsAre(2));
  EXPECT_THAT(WantedAttempts(rules, AnswersOf({5, 5, 6})), IsEmpty());
  EXPECT_EQ(ChooseReference(rules, AnswersOf({5, 5, 6}), {})->attempt, 2);
}

TEST(AnswerRulesTest, AfterEightResamplesAnEqualAnswerIsKept) {
  const AnswerRules rules = RulesOf(ReferenceSource::kDual);
  AnswersByAttempt answers = AnswersOf({5, 5});
  int64_t resamples = 0;
  while (!WantedAttempts(rules, answers).empty()) {
    const std::vector<int64_t> wanted = WantedAttempts(rules, answers);
    ASSERT_EQ(wanted.size(), 1u);
    ASSERT_LT(wanted[0], kMaxAttempts);
    answers[wanted[0]].ids = {5};
    ++resamples;
  }
  EXPECT_EQ(resamples, 8);
  EXPECT_EQ(ChooseReference(rules, answers, {})->attempt, 9);
}

TEST(AnswerRulesTest, TheFirstApprovedOfFourCandidatesIsTaken) {
  const AnswersByAttempt answers = AnswersOf({5, 6, 7, 8, 9});
  const AnswerRules rules = RulesOf(ReferenceSource::kVerified);
  EXPECT_THAT(WantedAttempts(rules, {}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(WantedAttempts(rules, answers), IsEmpty());
  const auto choice =
      ChooseReference(rules, answers, {false, true, true, false});
  EXPECT_EQ(choice->attempt, 2);
  EXPECT_TRUE(choice->is_approved);
}

TEST(AnswerRulesTest, WithNoneApprovedTheFirstStandsInOrTheSampleIsLeftOut) {
  const AnswersByAttempt answers = AnswersOf({5, 6, 7, 8, 9});
  const std::vector<bool> none(4, false);
  const auto first =
      ChooseReference(RulesOf(ReferenceSource::kVerified), answers, none);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->attempt, 1);
  EXPECT_FALSE(first->is_approved);
  EXPECT_FALSE(
      ChooseReference(
          RulesOf(ReferenceSource::kVerified, Unverified::kSkip), answers, none)
          .has_value());
}

// Training without groups draws with this key, too.
TEST(AnswerRulesTest, TheFirstAnswerOfTheFirstMemberHasTheRowsOwnKey) {
  const SamplingKey row = {.seed = 1, .step = 2, .example = 3};
  const SamplingKey key = KeyOfAttempt(KeyOfMember(row, 0), 0);
  EXPECT_EQ(key.sample, 0u);
  EXPECT_EQ(std::tuple(key.seed, key.step, key.example), std::tuple(1, 2, 3));
}

TEST(AnswerRulesTest, ARowThatComesUpAgainInAStepCountsOn) {
  const std::vector<int64_t> rows = {7, 7, 3, 3, 7, 7};
  EXPECT_EQ(MembersOf(rows), (std::vector<int64_t>{0, 1, 0, 1, 2, 3}));
  EXPECT_TRUE(MembersOf({}).empty());
}

TEST(AnswerRulesTest, NoTwoAnswersOfARowShareTheirRandomNumbers) {
  std::set<uint32_t> samples;
  for (int64_t member = 0; member < 8; ++member) {
    for (int64_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
      samples.insert(KeyOfAttempt(KeyOfMember({}, member), attempt).sample);
    }
  }
  EXPECT_EQ(samples.size(), 8u * kMaxAttempts);
}

}  // namespace
}  // namespace dapd
