#include "common/objective/terms.h"

#include <set>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"

namespace dapd {
namespace {

absl::StatusOr<Term> ResolveTerm(const TermConfig& config) {
  const auto refuse = [&](const std::string& reason) {
    return ConfigError(
        absl::StrCat("objective term '", config.name, "': ", reason));
  };
  Term term;
  term.name = config.name;
  term.clip = config.clip;
  term.weight = config.weight;
  const auto student = ParseViewName(config.student);
  if (!student.ok()) return refuse(std::string(student.status().message()));
  const auto teacher = ParseViewName(config.teacher);
  if (!teacher.ok()) return refuse(std::string(teacher.status().message()));
  term.student = *student;
  term.teacher.view = *teacher;
  if (config.teacher_weights == "base") {
    term.teacher.weights = WeightSet::kBase;
  } else if (config.teacher_weights == "snapshot") {
    term.teacher.weights = WeightSet::kSnapshot;
  } else {
    return refuse(absl::StrCat("teacher_weights '",
                               config.teacher_weights,
                               "' is neither base nor snapshot"));
  }
  if (config.divergence != "forward_kl") {
    return refuse(absl::StrCat(
        "divergence '", config.divergence, "' is not known; use forward_kl"));
  }
  if (CompletionOf(term.student) != CompletionOf(term.teacher.view)) {
    return refuse(absl::StrCat(
        config.student, " and ", config.teacher, " score different tokens"));
  }
  return term;
}

}  // namespace

absl::StatusOr<std::vector<Term>> ResolveTerms(
    const ObjectiveSection& section) {
  std::vector<Term> terms;
  std::set<std::string> names;
  for (const TermConfig& config : ExpandTerms(section)) {
    ASSIGN_OR_RETURN(Term term, ResolveTerm(config));
    if (!names.insert(term.name).second) {
      return ConfigError(
          absl::StrCat("objective term '", term.name, "' occurs twice"));
    }
    terms.push_back(std::move(term));
  }
  if (terms.empty()) return ConfigError("the objective has no terms");
  return terms;
}

std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms) {
  std::set<TeacherPass> passes;
  for (const Term& term : terms) passes.insert(term.teacher);
  return {passes.begin(), passes.end()};
}

std::vector<ViewName> StudentViews(const std::vector<Term>& terms) {
  std::set<ViewName> views;
  for (const Term& term : terms) views.insert(term.student);
  return {views.begin(), views.end()};
}

}  // namespace dapd
