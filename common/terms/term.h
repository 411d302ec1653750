// The objective as data: a list of weighted terms, each a divergence between a
// student's distribution and a target over the same scored tokens.
//
// To add a term, add a row to the configuration (objective.terms) or to a
// preset (common/config/preset_terms.h); to add a divergence or a target, see
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

// How a token of none_rollout weighs by its probability under the live policy
// against the one under which it was sampled: min(p / p_sampler,
// importance_cap), without gradient, both at temperature 1 and unfiltered. 1
// where the sampler's is not known. SDPO caps two factors, for the optimizer
// steps since the answer was sampled and for how differently trainer and
// sampler compute; the sampler is the only one here that saw the older policy,
// so this is both in one.
enum class Importance {
  kNone,      // every token counts alike
  kToken,     // its own ratio (SDPO)
  kSequence,  // the mean of the ratios of its answer's counted tokens (SDFT)
};
constexpr auto NameTable(Importance) {
  return std::array{"none", "token", "sequence"};
}

struct Term {
  std::string name;
  ViewName student = ViewName::kNoneRollout;  // read with the live adapter
  Target target = TeacherPass{};
  Divergence divergence;
  Support support;
  Reduction reduction = Reduction::kMicroToken;
  int64_t skip_tokens = 0;  // of every answer's first scored tokens, left out
  Importance importance = Importance::kNone;
  double importance_cap = 2.0;
  double weight = 0.0;
};

// Every teacher forward that `terms` need, each once, in a fixed order.
std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms);

// Every student view that `terms` need, each once, in the order of ViewName.
std::vector<ViewName> StudentViews(const std::vector<Term>& terms);

// Every view that a student or a teacher of `terms` reads, in the order of
// ViewName; and whether `view` is one of them.
std::set<ViewName> ViewsRead(const std::vector<Term>& terms);
bool ReadsView(const std::vector<Term>& terms, ViewName view);

// Whether any of those views needs the rollout: without one, nothing has to be
// sampled.
bool ReadsRollouts(const std::vector<Term>& terms);
// Whether any term trains a sample's reference.
bool ScoresReferences(const std::vector<Term>& terms);

// Whether the target of `term` reads a view that the sample lacks
// (MayBeMissing): the term is masked there.
bool LacksTarget(const Term& term, const Views& views);

// The tokens of a sample that `term` counts: those that its student scores, but
// for the first skip_tokens; none where it is masked.
int64_t TokensOf(const Term& term, const Views& views);

// What is wrong with a term, empty if nothing is: views that score different
// tokens, a number out of its range, a support that its target does not have.
std::string ProblemWith(const Term& term);

}  // namespace dapd
