// The objective as data: a list of weighted terms, each a divergence between a
// student's distribution and a target over the same scored tokens.
//
// To add a term, add a row to the configuration (objective.terms) or to a
// preset (common/config/preset_terms.h); to add a divergence or a target, see
// docs/objective.md.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/terms/divergence.h"
#include "common/terms/target.h"
#include "common/terms/view.h"

namespace dapd {

struct Term {
  std::string name;
  ViewName student = ViewName::kNoneRollout;  // read with the live adapter
  Target target = TeacherPass{};
  Divergence divergence;
  Support support;
  Reduction reduction = Reduction::kMicroToken;
  int64_t skip_tokens = 0;  // of every answer's first scored tokens, left out
  double weight = 0.0;
};

// Every teacher forward that `terms` need, each once, in a fixed order.
std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms);

// Every student view that `terms` need, each once, in the order of ViewName.
std::vector<ViewName> StudentViews(const std::vector<Term>& terms);

// Every view that a student or a teacher of `terms` reads, in the order of
// ViewName.
std::set<ViewName> ViewsRead(const std::vector<Term>& terms);

// Whether any of those views needs the rollout: without one, nothing has to be
// sampled.
bool ReadsRollouts(const std::vector<Term>& terms);
// Whether any term trains a sample's reference.
bool ScoresReferences(const std::vector<Term>& terms);

// What is wrong with a term, empty if nothing is: views that score different
// tokens, a number out of its range, a support that its target does not have.
std::string ProblemWith(const Term& term);

// Names as the configuration has them; nothing for an unknown one.
const char* DivergenceName(DivergenceKind kind);
std::optional<DivergenceKind> ParseDivergence(const std::string& name);
const char* SupportName(SupportKind kind);
std::optional<SupportKind> ParseSupport(const std::string& name);
const char* ReductionName(Reduction reduction);
std::optional<Reduction> ParseReduction(const std::string& name);
// "forward_kl, reverse_kl, ...", for messages.
std::string DivergenceNames();
std::string SupportNames();
std::string ReductionNames();

}  // namespace dapd
