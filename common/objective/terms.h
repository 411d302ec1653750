// The objective as data: a list of weighted terms, each a component-clipped
// full-vocabulary KL divergence between a teacher's and the student's
// distribution over the same scored tokens.
//
// To add a term, add a row to the configuration (objective.terms) or to a
// preset; to add a divergence, see clipped_kl.h.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/objective/spec/view.h"
#include "common/objective/spec/weight_set.h"

namespace dapd {

// One forward that a teacher has to do for a sample.
struct TeacherPass {
  WeightSet weights = WeightSet::kBase;
  ViewName view = ViewName::kNoneRollout;
  auto operator<=>(const TeacherPass&) const = default;
};

struct Term {
  std::string name;
  ViewName student = ViewName::kNoneRollout;  // read with the live adapter
  TeacherPass teacher;
  double clip = 0.05;  // c, per vocabulary entry; infinity: no clip
  double weight = 0.0;
};

// The terms of the configuration: objective.terms if given, else the preset's.
// INVALID_ARGUMENT names a term with an unknown view, weights or divergence, or
// whose two views score different tokens.
absl::StatusOr<std::vector<Term>> ResolveTerms(const ObjectiveSection& section);

// Every teacher forward that `terms` need, each once, in a fixed order.
std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms);

// Every student view that `terms` need, each once, in the order of ViewName.
std::vector<ViewName> StudentViews(const std::vector<Term>& terms);

}  // namespace dapd
