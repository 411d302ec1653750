#include "common/terms/term.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/overloaded.h"

namespace dapd {
namespace {

std::string ProblemWith(const Mixture& mixture) {
  if (mixture.delta.empty() || mixture.delta.size() > Mixture::kMaxParts) {
    return absl::StrCat("a mixture's delta has 1 to ",
                        Mixture::kMaxParts,
                        " passes, not ",
                        mixture.delta.size());
  }
  // Differences are divided by soft_clip in single precision.
  if (!(mixture.soft_clip >= 1e-6)) return "soft_clip must be at least 1e-06";
  return "";
}

std::string ProblemWith(const Routed& routed) {
  return routed.trim >= 0.0 && routed.trim < 1.0
             ? ""
             : "trim must be at least 0 and below 1";
}

std::string ProblemWithOneHot(const Term& term) {
  if (term.divergence.kind != DivergenceKind::kForwardKl ||
      term.support.kind != SupportKind::kFull) {
    return "a one_hot target takes forward_kl over the full support: it gives "
           "every other token the probability 0";
  }
  return std::isinf(term.divergence.clip)
             ? ""
             : "a one_hot target's only component is the whole cross entropy, "
               "which has no gradient where it is clipped: clip "
               "(objective.component_clip of a preset) must be .inf";
}

}  // namespace

TeacherPass PassWith(const std::string& weights, ViewName view) {
  const std::optional<WeightSet> own = ParseName<WeightSet>(weights);
  return own.has_value() ? TeacherPass{*own, view}
                         : TeacherPass{WeightSet::kBase, view, weights};
}

std::string WeightsText(const TeacherPass& pass) {
  return pass.teacher.empty() ? NameOf(pass.weights) : pass.teacher;
}

std::vector<TeacherPass> PassesOf(const Target& target) {
  using Passes = std::vector<TeacherPass>;
  return std::visit(
      Overloaded{[](const TeacherPass& pass) { return Passes{pass}; },
                 [](const Mixture& mixture) {
                   Passes passes = {mixture.anchor};
                   for (const WeightedPass& part : mixture.delta) {
                     passes.push_back(part.pass);
                   }
                   return passes;
                 },
                 [](const Routed& routed) {
                   return Passes{routed.first, routed.second};
                 },
                 [](const OneHot&) { return Passes(); }},
      target);
}

std::string Describe(const Target& target) {
  std::vector<std::string> passes;
  for (const TeacherPass& pass : PassesOf(target)) {
    const std::string weights = pass.teacher.empty() ? NameOf(pass.weights)
                                : pass.teacher == kRowTeacher
                                    ? "the row's teacher"
                                    : absl::StrCat("teacher ", pass.teacher);
    passes.push_back(
        absl::StrCat(ViewNameString(pass.view), " (", weights, ")"));
  }
  return std::visit(
      Overloaded{
          [&](const TeacherPass&) { return passes.front(); },
          [&](const Mixture&) {
            return "mixture of " + absl::StrJoin(passes, ", ");
          },
          [&](const Routed&) { return absl::StrJoin(passes, " or "); },
          [](const OneHot&) -> std::string { return "the scored tokens"; }},
      target);
}

std::vector<TeacherPass> TeacherPasses(const std::vector<Term>& terms) {
  std::set<TeacherPass> passes;
  for (const Term& term : terms) {
    for (const TeacherPass& pass : PassesOf(term.target)) passes.insert(pass);
  }
  return {passes.begin(), passes.end()};
}

std::set<std::string> TeachersNamed(const std::vector<Term>& terms) {
  std::set<std::string> names;
  for (const TeacherPass& pass : TeacherPasses(terms)) {
    if (!pass.teacher.empty()) names.insert(pass.teacher);
  }
  return names;
}

bool ReadsRowTeacher(const Term& term) {
  return TeachersNamed({term}).contains(kRowTeacher);
}

std::vector<ViewName> StudentViews(const std::vector<Term>& terms) {
  std::set<ViewName> views;
  for (const Term& term : terms) views.insert(term.student);
  return {views.begin(), views.end()};
}

std::set<ViewName> ViewsRead(const std::vector<Term>& terms) {
  std::set<ViewName> views;
  for (const ViewName view : StudentViews(terms)) views.insert(view);
  for (const TeacherPass& pass : TeacherPasses(terms)) views.insert(pass.view);
  return views;
}

bool ReadsView(const std::vector<Term>& terms, ViewName view) {
  return ViewsRead(terms).contains(view);
}

bool ReadsRollouts(const std::vector<Term>& terms) {
  return std::ranges::any_of(ViewsRead(terms), NeedsRollout);
}

bool ScoresReferences(const std::vector<Term>& terms) {
  return std::ranges::any_of(terms, [](const Term& term) {
    return CompletionOf(term.student) == Completion::kReference;
  });
}

bool LacksTarget(const Term& term, const Views& views) {
  return std::ranges::any_of(
      PassesOf(term.target), [&](const TeacherPass& pass) {
        return MayBeMissing(pass.view) &&
               views[static_cast<size_t>(pass.view)].scored_count == 0;
      });
}

int64_t TokensOf(const Term& term, const Views& views) {
  if (LacksTarget(term, views)) return 0;
  const View& view = views[static_cast<size_t>(term.student)];
  return std::max<int64_t>(0, view.scored_count - term.skip_tokens);
}

std::string ProblemWith(const Term& term) {
  for (const TeacherPass& pass : PassesOf(term.target)) {
    if (CompletionOf(pass.view) != CompletionOf(term.student)) {
      return absl::StrCat(ViewNameString(term.student),
                          " and ",
                          ViewNameString(pass.view),
                          " score different tokens");
    }
  }
  const Divergence& divergence = term.divergence;
  if (divergence.kind == DivergenceKind::kJensenShannon &&
      !(divergence.beta > 0.0 && divergence.beta < 1.0)) {
    return absl::StrCat("beta ",
                        divergence.beta,
                        " is not between 0 and 1; for the ends use forward_kl "
                        "or reverse_kl, which are not its limits");
  }
  if (std::isnan(divergence.clip)) return "clip is not a number";
  if (term.support.kind != SupportKind::kFull && term.support.k < 1) {
    return "top_k must be at least 1";
  }
  if (term.support.kind == SupportKind::kTeacherTopK &&
      !std::holds_alternative<TeacherPass>(term.target)) {
    return "teacher_top_k needs a target of one pass";
  }
  if (term.skip_tokens < 0) return "skip_tokens must be at least 0";
  if (term.importance != Importance::kNone &&
      term.student != ViewName::kNoneRollout) {
    return "importance compares with the sampler, which reads none_rollout";
  }
  if (!(term.importance_cap > 0.0)) return "importance_cap must be above 0";
  return std::visit(
      Overloaded{[](const TeacherPass&) { return std::string(); },
                 [](const Mixture& mixture) { return ProblemWith(mixture); },
                 [](const Routed& routed) { return ProblemWith(routed); },
                 [&](const OneHot&) { return ProblemWithOneHot(term); }},
      term.target);
}

}  // namespace dapd
