#include "common/objective/score_locally.h"

#include <set>
#include <utility>

#include "common/objective/view_pass.h"

namespace dapd {

std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const std::map<WeightSet, const Adapter*>& adapters,
    const std::vector<TeacherPass>& passes,
    const Views& views) {
  at::NoGradGuard no_grad;
  const auto adapter_of = [&](const TeacherPass& pass) -> const Adapter* {
    const auto found = adapters.find(pass.weights);
    if (found != adapters.end()) return found->second;
    TORCH_CHECK(pass.weights == WeightSet::kBase,
                "no ",
                NameOf(pass.weights),
                " weights to score with");
    return nullptr;
  };
  // A view that two passes read with the same weights is computed once.
  std::map<const Adapter*, std::set<ViewName>> views_of;
  for (const TeacherPass& pass : passes) {
    if (views[static_cast<size_t>(pass.view)].scored_count == 0) continue;
    views_of[adapter_of(pass)].insert(pass.view);
  }
  std::map<std::pair<const Adapter*, ViewName>, at::Tensor> hidden_of;
  for (const auto& [adapter, view_set] : views_of) {
    const std::vector<ViewName> names(view_set.begin(), view_set.end());
    const std::vector<at::Tensor> hidden =
        HiddenOfViews(weights, adapter, Pick(views, names));
    for (size_t i = 0; i < names.size(); ++i) {
      hidden_of[{adapter, names[i]}] = hidden[i];
    }
  }
  std::map<TeacherPass, TeacherScores> scores;
  for (const TeacherPass& pass : passes) {
    const auto hidden = hidden_of.find({adapter_of(pass), pass.view});
    if (hidden != hidden_of.end()) scores[pass].hidden = hidden->second;
  }
  return scores;
}

}  // namespace dapd
