#include "common/config/term_yaml.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::HasSubstr;

std::string Read(const std::string& text, Term* term) {
  return ReadTerm(YAML::Load(text), term);
}

constexpr char kPlain[] =
    "{name: t, student: none_rollout, teacher: cross_rollout, "
    "teacher_weights: base, weight: 1";

TEST(TermYamlTest, ATermOfThePresetsFormHasTheDefaults) {
  Term term;
  ASSERT_EQ(Read(std::string(kPlain) + "}", &term), "");
  EXPECT_EQ(term.student, ViewName::kNoneRollout);
  EXPECT_EQ(std::get<TeacherPass>(term.target),
            (TeacherPass{WeightSet::kBase, ViewName::kCrossRollout}));
  EXPECT_EQ(term.divergence, Divergence());
  EXPECT_EQ(term.support, Support());
  EXPECT_EQ(term.reduction, Reduction::kMicroToken);
}

TEST(TermYamlTest, WhatIsWrittenIsReadAgain) {
  const std::vector<std::string> texts = {
      std::string(kPlain) + "}",
      std::string(kPlain) +
          ", divergence: jensen_shannon, beta: 0.25, clip: .inf, support: "
          "student_top_k, top_k: 20, tail: false, reduction: "
          "seq_mean_keep_masked, skip_tokens: 3}",
      std::string(kPlain) + ", importance: token, importance_cap: 3}",
      "{name: purified, student: none_rollout, weight: 2, target: {anchor: "
      "{view: none_rollout, weights: base}, delta: [{view: cross_rollout, "
      "weights: base}, {view: self_rollout, weights: snapshot, factor: -1}], "
      "recentre: true, soft_clip: 10, strength: 0.5}}",
      "{name: dopd, student: none_rollout, weight: 1, target: {first: {view: "
      "cross_rollout, weights: base}, second: {view: cross_rollout, weights: "
      "snapshot}, trim: 0.1, regimes: {agree_likely: {factor: 0.6}, "
      "second_surer: {pass: second, factor: 0}}}}",
      "{name: sft, student: none_reference, weight: 1, target: one_hot}",
      "{name: opd, student: none_rollout, teacher: none_rollout, "
      "teacher_weights: big, weight: 1}",
      "{name: dopd, student: none_rollout, weight: 1, target: {first: {view: "
      "cross_rollout, weights: big}, second: {view: cross_rollout, weights: "
      "live}, regimes: {}}}",
  };
  for (const std::string& text : texts) {
    Term term;
    ASSERT_EQ(Read(text, &term), "") << text;
    Term again;
    const std::string written = FormatTerm(term);
    ASSERT_EQ(Read(written, &again), "") << written;
    EXPECT_EQ(FormatTerm(again), written);
    EXPECT_EQ(again.target, term.target) << written;
    EXPECT_EQ(again.divergence, term.divergence) << written;
    EXPECT_EQ(again.support, term.support) << written;
    EXPECT_EQ(again.reduction, term.reduction) << written;
    EXPECT_EQ(again.skip_tokens, term.skip_tokens) << written;
    EXPECT_EQ(again.importance, term.importance) << written;
    EXPECT_EQ(again.importance_cap, term.importance_cap) << written;
    EXPECT_EQ(again.weight, term.weight) << written;
  }
}

// A clip below the whole cross entropy would leave nothing to learn.
TEST(TermYamlTest, AOneHotTargetIsNotClippedUnlessThatIsSaid) {
  Term term;
  ASSERT_EQ(Read("{name: sft, student: none_reference, weight: 1, target: "
                 "one_hot}",
                 &term),
            "");
  EXPECT_TRUE(std::isinf(term.divergence.clip));
  EXPECT_EQ(ProblemWith(term), "");
  ASSERT_EQ(Read("{name: sft, student: none_reference, weight: 1, target: "
                 "one_hot, clip: 0.05}",
                 &term),
            "");
  EXPECT_NE(ProblemWith(term), "");
}

TEST(TermYamlTest, AMistakeIsNamedWithItsPlace) {
  struct Case {
    std::string text;
    std::string problem;
  };
  const std::string plain = kPlain;
  for (const Case& c : std::vector<Case>{
           {"[1]", "is not a map"},
           {"{name: t, weight: 1}", "student is missing"},
           {"{name: t, student: none_rollout, weight: 1}",
            "teacher is missing"},
           {"{name: t, student: nun, teacher: cross_rollout, "
            "teacher_weights: base, weight: 1}",
            "student: 'nun' is not a view"},
           {plain + ", divergence: kl}",
            "divergence: 'kl' is not one of forward_kl"},
           {plain + ", clip: 0}", "clip: must be a number above 0"},
           {plain + ", clip: x}", "clip: must be a number above 0"},
           {plain + ", importance: all}",
            "importance: 'all' is not one of none, token, sequence"},
           {plain + ", top_k: 1.5}", "top_k: must be an integer"},
           {plain + ", skip_tokens: -1}", "skip_tokens: must be an integer"},
           {plain + ", tail: maybe}", "tail: must be true or false"},
           {plain + ", klip: 1}", "unknown key 'klip'"},
           {plain + ", target: {anchor: 1}}", "target: delta is missing"},
           {plain + ", target: {}}", "target: neither"},
           {plain + ", target: {anchor: {view: none_rollout, weights: base}, "
                    "delta: []}}",
            "mutually exclusive"},
           {"{name: t, student: none_rollout, weight: 1, target: {anchor: "
            "{view: none_rollout, weights: [base]}, delta: []}}",
            "target: anchor: weights: is not the name of a set of weights or "
            "of a teacher"},
           {"{name: t, student: none_rollout, teacher: none_rollout, "
            "teacher_weights: '', weight: 1}",
            "teacher_weights: is not the name"},
           {"{name: t, student: none_rollout, weight: .inf, teacher: "
            "cross_rollout, teacher_weights: base}",
            "weight: must be a number from -1e+06 to 1e+06"}}) {
    Term term;
    EXPECT_THAT(Read(c.text, &term), HasSubstr(c.problem)) << c.text;
  }
}

}  // namespace
}  // namespace dapd
