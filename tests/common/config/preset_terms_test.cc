#include "common/config/preset_terms.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/config/load_config.h"

namespace dapd {
namespace {

TEST(PresetTermsTest, EveryScalesConfigurationHasThePapersWeights) {
  struct Scale {
    std::string file;
    std::vector<double> weights;  // in the order of the six terms
  };
  const std::vector<Scale> scales = {
      {"qwen3-1.7b.yaml", {.4, .4, .2, .4, .4, .2}},
      {"qwen3-4b.yaml", {2. / 15, 2. / 15, 2. / 15, .4, .4, .8}},
      {"qwen3-8b.yaml", {.1, .1, .2, .64, .64, .32}},
      {"qwen3-14b.yaml", {.1, .1, .2, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
      {"qwen3-32b.yaml", {.16, .16, .08, 1.6 / 3, 1.6 / 3, 1.6 / 3}},
  };
  for (const Scale& scale : scales) {
    const auto loaded =
        LoadConfig(std::string(DAPD_SOURCE_DIR) + "/configs/" + scale.file, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::vector<Term> terms = ExpandTerms(loaded->config.objective);
    ASSERT_EQ(terms.size(), 6u);
    double sum = 0.0;
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(terms[i].weight, scale.weights[i], 1e-12)
          << scale.file << " " << terms[i].name;
      sum += terms[i].weight;
    }
    EXPECT_NEAR(sum, 2.0, 1e-12) << scale.file;
  }
}

TEST(PresetTermsTest, DapdIsTheReleasedWeightingOfSixTerms) {
  struct Expected {
    const char* name;
    ViewName student;
    TeacherPass teacher;
    double weight;
  };
  using enum ViewName;
  using enum WeightSet;
  const std::vector<Expected> table = {
      {"entangled_rollout", kNoneRollout, {kSnapshot, kCrossRollout}, 2.0 / 15},
      {"inference_reference",
       kSelfReference,
       {kBase, kNoneReference},
       2.0 / 15},
      {"privileged_rollout", kSelfRollout, {kBase, kCrossRollout}, 2.0 / 15},
      {"entangled_reference",
       kNoneReference,
       {kSnapshot, kCrossReference},
       2.0 / 5},
      {"inference_rollout", kSelfRollout, {kBase, kNoneRollout}, 2.0 / 5},
      {"privileged_reference",
       kSelfReference,
       {kBase, kCrossReference},
       4.0 / 5},
  };
  const std::vector<Term> terms = ExpandTerms(ObjectiveSection{});
  ASSERT_EQ(terms.size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Term& term = terms[i];
    EXPECT_EQ(term.name, table[i].name);
    EXPECT_EQ(term.student, table[i].student) << term.name;
    EXPECT_EQ(std::get<TeacherPass>(term.target), table[i].teacher)
        << term.name;
    EXPECT_NEAR(term.weight, table[i].weight, 1e-15) << term.name;
    EXPECT_EQ(term.divergence, Divergence()) << term.name;
    EXPECT_EQ(ProblemWith(term), "") << term.name;
  }
  EXPECT_EQ(TeacherPasses(terms).size(), 6u);
  EXPECT_EQ(StudentViews(terms).size(), 4u);
}

TEST(PresetTermsTest, SdpoIsOneTermAgainstTheMovingAverage) {
  ObjectiveSection section;
  section.preset = "sdpo";
  std::vector<Term> terms = ExpandTerms(section);
  ASSERT_EQ(terms.size(), 1u);
  const Term& term = terms[0];
  EXPECT_EQ(ProblemWith(term), "");
  EXPECT_EQ(term.student, ViewName::kNoneRollout);
  EXPECT_EQ(std::get<TeacherPass>(term.target),
            (TeacherPass{WeightSet::kEma, ViewName::kSiblingRollout}));
  EXPECT_EQ(term.divergence,
            (Divergence{DivergenceKind::kJensenShannon, 0.5, kNoClip}));
  EXPECT_EQ(term.support, (Support{SupportKind::kStudentTopK, 100, true}));
  EXPECT_EQ(term.reduction, Reduction::kSeqMeanKeepMasked);
  EXPECT_EQ(term.importance, Importance::kToken);
  EXPECT_EQ(term.importance_cap, 2.0);
  EXPECT_EQ(term.weight, 1.0);
  section.sdpo = {.divergence = "reverse_kl", .top_k = 20};
  terms = ExpandTerms(section);
  EXPECT_EQ(terms[0].divergence.kind, DivergenceKind::kReverseKl);
  EXPECT_EQ(terms[0].support.k, 20);
}

TEST(PresetTermsTest, GivenTermsReplaceThePreset) {
  ObjectiveSection section;
  section.terms = {{.name = "mine", .weight = 3.0}};
  ASSERT_EQ(ExpandTerms(section).size(), 1u);
  EXPECT_EQ(ExpandTerms(section)[0].name, "mine");
}

}  // namespace
}  // namespace dapd
