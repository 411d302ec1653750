#include "common/terms/term.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Term MakeTerm(Target target) {
  return {.name = "t",
          .student = ViewName::kNoneRollout,
          .target = std::move(target),
          .weight = 1.0};
}

const TeacherPass kNone = {WeightSet::kBase, ViewName::kNoneRollout};
const TeacherPass kCross = {WeightSet::kBase, ViewName::kCrossRollout};
const TeacherPass kSnapshot = {WeightSet::kSnapshot, ViewName::kCrossRollout};

Mixture MakeMixture() {
  return {.anchor = kNone, .delta = {{kCross, 1.0}, {kSnapshot, -1.0}}};
}

TEST(TermTest, EveryPassOfATargetIsAskedForOnce) {
  const std::vector<Term> terms = {MakeTerm(kCross),
                                   MakeTerm(MakeMixture()),
                                   MakeTerm(Routed{kSnapshot, kCross})};
  EXPECT_THAT(TeacherPasses(terms), ElementsAre(kNone, kCross, kSnapshot));
  EXPECT_THAT(StudentViews(terms), ElementsAre(ViewName::kNoneRollout));
  EXPECT_THAT(PassesOf(terms[1].target), ElementsAre(kNone, kCross, kSnapshot));
}

TEST(TermTest, ATermOfReferencesAloneNeedsNoRollout) {
  using enum ViewName;
  Term sft = MakeTerm(OneHot());
  sft.student = kNoneReference;
  EXPECT_TRUE(TeacherPasses({sft}).empty());
  EXPECT_FALSE(ReadsRollouts({sft}));
  EXPECT_TRUE(ScoresReferences({sft}));
  Term crossed = sft;
  crossed.target = TeacherPass{WeightSet::kBase, kCrossReference};
  EXPECT_TRUE(ReadsRollouts({sft, crossed})) << "the teacher sees it";
  EXPECT_FALSE(ScoresReferences({MakeTerm(kCross)}));
  EXPECT_EQ(ViewsRead({crossed}), (std::set{kNoneReference, kCrossReference}));
}

TEST(TermTest, WhatCannotBeComputedIsNamed) {
  struct Case {
    std::string problem;
    Term term;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* problem, Target target) -> Term& {
    cases.push_back({problem, MakeTerm(std::move(target))});
    return cases.back().term;
  };
  add("", kCross);
  add("", MakeMixture());
  add("none_rollout and cross_reference score different tokens",
      TeacherPass{WeightSet::kBase, ViewName::kCrossReference});
  Mixture empty = MakeMixture();
  empty.delta.clear();
  add("1 to 4 passes, not 0", empty);
  Mixture narrow = MakeMixture();
  narrow.soft_clip = 1e-39;
  add("soft_clip must be at least 1e-06", narrow);
  Mixture large = MakeMixture();
  large.delta.resize(5, {kCross, 1.0});
  add("1 to 4 passes, not 5", large);
  add("trim", Routed{.first = kNone, .second = kCross, .trim = 1.0});
  add("clip is not a number", kCross).divergence.clip =
      std::numeric_limits<double>::quiet_NaN();
  add("importance_cap must be above 0", kCross).importance_cap = 0.0;
  add("beta 1", kCross).divergence = {DivergenceKind::kJensenShannon, 1.0};
  add("beta 0", kCross).divergence = {DivergenceKind::kJensenShannon, 0.0};
  add("", kCross).divergence = {DivergenceKind::kReverseKl, 1.0};
  add("top_k", kCross).support = {SupportKind::kStudentTopK, 0};
  add("teacher_top_k", MakeMixture()).support = {SupportKind::kTeacherTopK, 5};
  add("skip_tokens", kCross).skip_tokens = -1;
  constexpr double kNoClip = std::numeric_limits<double>::infinity();
  add("", OneHot()).divergence.clip = kNoClip;
  add("must be .inf", OneHot()).divergence.clip = 0.05;
  add("forward_kl", OneHot()).divergence = {DivergenceKind::kReverseKl};
  add("full support", OneHot()).support = {SupportKind::kStudentTopK, 5};
  for (const Case& c : cases) {
    if (c.problem.empty()) {
      EXPECT_EQ(ProblemWith(c.term), "");
    } else {
      EXPECT_THAT(ProblemWith(c.term), HasSubstr(c.problem));
    }
  }
}

TEST(ViewTest, EveryViewHasANameAndAnUnknownOneIsToldTheNames) {
  for (int i = 0; i < kNumViews; ++i) {
    const auto view = static_cast<ViewName>(i);
    EXPECT_EQ(ParseViewName(ViewNameString(view)).value(), view);
  }
  const auto unknown = ParseViewName("nun_rollout");
  EXPECT_THAT(
      std::string(unknown.status().message()),
      testing::AllOf(HasSubstr("'nun_rollout'"), HasSubstr("cross_reference")));
}

TEST(ViewTest, OnlyViewsOfTheReferenceThatShowNoRolloutNeedNone) {
  using enum ViewName;
  for (const ViewName view : {kNoneReference, kSelfReference}) {
    EXPECT_FALSE(NeedsRollout(view));
    EXPECT_EQ(CompletionOf(view), Completion::kReference);
  }
  EXPECT_TRUE(NeedsRollout(kCrossReference));
  EXPECT_EQ(CompletionOf(kCrossReference), Completion::kReference);
  for (const ViewName view : {kNoneRollout,
                              kSelfRollout,
                              kCrossRollout,
                              kDemonstrationRollout,
                              kProbeRollout}) {
    EXPECT_TRUE(NeedsRollout(view));
    EXPECT_EQ(CompletionOf(view), Completion::kRollout);
  }
}

TEST(TermTest, ATermIsMaskedWhereItsTargetsViewIsMissing) {
  Views views;
  views[static_cast<size_t>(ViewName::kNoneRollout)].scored_count = 7;
  const Term sdpo =
      MakeTerm(TeacherPass{WeightSet::kEma, ViewName::kSiblingRollout});
  EXPECT_TRUE(LacksTarget(sdpo, views));
  EXPECT_EQ(TokensOf(sdpo, views), 0);
  // Views with another text may still come.
  EXPECT_FALSE(LacksTarget(MakeTerm(kCross), views));
  EXPECT_EQ(TokensOf(MakeTerm(kCross), views), 7);

  views[static_cast<size_t>(ViewName::kSiblingRollout)].scored_count = 7;
  EXPECT_FALSE(LacksTarget(sdpo, views));
  Term skipping = sdpo;
  skipping.skip_tokens = 3;
  EXPECT_EQ(TokensOf(skipping, views), 4);
  skipping.skip_tokens = 9;
  EXPECT_EQ(TokensOf(skipping, views), 0);
}

TEST(TermTest, ImportanceIsTheSamplersViewsOnly) {
  Term term = MakeTerm(kCross);
  term.importance = Importance::kToken;
  EXPECT_EQ(ProblemWith(term), "");
  term.student = ViewName::kSelfRollout;
  EXPECT_THAT(ProblemWith(term), HasSubstr("none_rollout"));
}

}  // namespace
}  // namespace dapd
