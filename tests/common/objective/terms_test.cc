#include "common/objective/terms.h"

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

TEST(TermsTest, ThePresetIsTheReleasedWeightingOfSixTerms) {
  const auto terms = ResolveTerms(ObjectiveSection{});
  ASSERT_TRUE(terms.ok()) << terms.status();
  struct Expected {
    const char* name;
    ViewName student, teacher;
    WeightSet weights;
    double weight;
  };
  using enum ViewName;
  const std::vector<Expected> table = {
      {"entangled_rollout",
       kNoneRollout,
       kCrossRollout,
       WeightSet::kSnapshot,
       2.0 / 15},
      {"inference_reference",
       kSelfReference,
       kNoneReference,
       WeightSet::kBase,
       2.0 / 15},
      {"privileged_rollout",
       kSelfRollout,
       kCrossRollout,
       WeightSet::kBase,
       2.0 / 15},
      {"entangled_reference",
       kNoneReference,
       kCrossReference,
       WeightSet::kSnapshot,
       2.0 / 5},
      {"inference_rollout",
       kSelfRollout,
       kNoneRollout,
       WeightSet::kBase,
       2.0 / 5},
      {"privileged_reference",
       kSelfReference,
       kCrossReference,
       WeightSet::kBase,
       4.0 / 5},
  };
  ASSERT_EQ(terms->size(), table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const Term& term = (*terms)[i];
    EXPECT_EQ(term.name, table[i].name);
    EXPECT_EQ(term.student, table[i].student) << term.name;
    EXPECT_EQ(term.teacher.view, table[i].teacher) << term.name;
    EXPECT_EQ(term.teacher.weights, table[i].weights) << term.name;
    EXPECT_NEAR(term.weight, table[i].weight, 1e-15) << term.name;
    EXPECT_EQ(term.clip, 0.05) << term.name;
  }
  EXPECT_EQ(TeacherPasses(*terms).size(), 6u);
  EXPECT_EQ(StudentViews(*terms).size(), 4u);
}

TEST(TermsTest, ATermWhoseViewsScoreDifferentTokensIsRefusedByName) {
  ObjectiveSection section;
  section.terms = {{.name = "odd",
                    .student = "none_rollout",
                    .teacher = "cross_reference",
                    .teacher_weights = "base",
                    .weight = 1.0}};
  const absl::Status status = ResolveTerms(section).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_NE(status.message().find("'odd'"), absl::string_view::npos) << status;
}

TEST(TermsTest, UnknownViewsWeightsAndDivergencesAreRefused) {
  const TermConfig good = {.name = "t",
                           .student = "none_rollout",
                           .teacher = "cross_rollout",
                           .teacher_weights = "base",
                           .weight = 1.0};
  for (auto change : std::vector<void (*)(TermConfig&)>{
           [](TermConfig& t) { t.student = "nun_rollout"; },
           [](TermConfig& t) { t.teacher = ""; },
           [](TermConfig& t) { t.teacher_weights = "live"; },
           [](TermConfig& t) { t.divergence = "reverse_kl"; }}) {
    ObjectiveSection section;
    section.terms = {good};
    ASSERT_TRUE(ResolveTerms(section).ok());
    change(section.terms[0]);
    EXPECT_FALSE(ResolveTerms(section).ok());
  }
}

}  // namespace
}  // namespace dapd
