// Describes the objective as data: a list of weighted terms. Each term is a
// divergence between a student's distribution and a target over the same scored
// tokens.
//
// To add a term, add a row to the configuration (objective.terms) or to a
// preset (common/config/preset_terms.h). To add a divergence or a target, see
// docs/objective.md.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/enum_names.h"
#include "common/terms/divergence.h"
#include "common/terms/target.h"
#include "common/terms/view.h"

namespace dapd {

// Weights a token of none_rollout by the ratio of its probabilities under the
// live policy and under the policy that sampled it: min(p / p_sampler,
// importance_cap), without gradient, both at temperature 1 and unfiltered. The
// weight is 1 if p_sampler is unknown. SDPO caps two factors: one for the
// optimizer steps since the answer was sampled, one for the numerical
// difference between trainer and sampler. Here only the sampler has evaluated
// the older policy, so the ratio contains both factors.
enum class Importance {
  kNone,      // every token has the same weight
  kToken,     // the token's own ratio (SDPO)
  kSequence,  // the mean of the ratios of its answer's counted tokens (SDFT)
};
constexpr auto NameTable(Importance) {
  return std::array{"none", "token", "sequence"};
}

struct Term {
  std::string name;
  ViewName student = ViewName::kNoneRollout;  // evaluated with the live adapter
  Target target = TeacherPass{};
  Divergence divergence;
  Support support;
  Reduction reduction = Reduction::kMicroToken;
  int64_t skip_tokens = 0;  // number of scored tokens left out at the beginning
                            // of each answer
  Importance importance = Importance::kNone;
  double importance_cap = 2.0;
  double weight = 0.0;
};

// Returns every teacher pass that `terms` need, once each, in a fixed order.
std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms);

// Returns the names in TeacherPass::teacher of all passes, kRowTeacher
// included; none if all passes are of the student's own model.
std::set<std::string> TeachersNamed(const std::vector<Term>& terms);
// Returns whether a pass of the term is read by the teacher that the row names.
bool ReadsRowTeacher(const Term& term);

// Returns every student view that `terms` need, once each, in the order of
// ViewName.
std::vector<ViewName> StudentViews(const std::vector<Term>& terms);

// Return every view that a student or a teacher of `terms` reads, in the order
// of ViewName; and whether `view` is one of them.
std::set<ViewName> ViewsRead(const std::vector<Term>& terms);
bool ReadsView(const std::vector<Term>& terms, ViewName view);

// Returns whether any of these views needs the rollout; if none does, nothing
// must be sampled.
bool ReadsRollouts(const std::vector<Term>& terms);
// Returns whether any term trains a sample's reference.
bool ScoresReferences(const std::vector<Term>& terms);

// Returns whether the target of `term` reads a view that the sample lacks
// (MayBeMissing). The term is masked for this sample then.
bool LacksTarget(const Term& term, const Views& views);

// Returns the number of tokens of a sample that `term` counts: the scored
// tokens of its student without the first skip_tokens; 0 if the term is masked.
int64_t TokensOf(const Term& term, const Views& views);

// Returns what is wrong with a term; empty if nothing is. Problems are views
// that score different tokens, a number out of its range, or a support that its
// target does not have.
std::string ProblemWith(const Term& term);

}  // namespace dapd
