#include "common/objective/position_gradient.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

// Returns the view up to a scored token; only this token is scored.
View CutToPosition(const View& view, int64_t position) {
  const int64_t at = view.scored_from + position;
  return {
      .input_ids = {view.input_ids.begin(), view.input_ids.begin() + at + 1},
      .scored_from = at,
      .scored_count = 1};
}

Term LossAlone(Term term) {
  term.reduction = Reduction::kMicroToken;
  term.skip_tokens = 0;
  term.importance = Importance::kNone;
  term.weight = 1.0;
  return term;
}

// Returns the data that `term` reads of a sample, cut to one scored token.
ScoredSample CutToPosition(const Term& term,
                           const ScoredSample& sample,
                           int64_t position) {
  ScoredSample one{.id = sample.id};
  for (const ViewName name : ViewsRead({term})) {
    const auto index = static_cast<size_t>(name);
    const View& view = sample.views[index];
    TORCH_CHECK(position >= 0 && position < view.scored_count,
                "[position_gradient] ",
                ViewNameString(name),
                " of sample ",
                sample.id,
                " scores ",
                view.scored_count,
                " tokens, not one at position ",
                position);
    one.views[index] = CutToPosition(view, position);
  }
  for (const TeacherPass& pass : PassesOf(term.target)) {
    const TeacherScores& scores = sample.scores.at(pass);
    one.scores[pass] = {.hidden = scores.hidden.narrow(0, position, 1),
                        .head = scores.head};
  }
  return one;
}

}  // namespace

std::string ProblemWithPositions(const Term& term) {
  if (!std::holds_alternative<Routed>(term.target)) return "";
  return absl::StrCat("term '",
                      term.name,
                      "' computes its target from averages over a micro-batch; "
                      "a single position has none");
}

PositionGradient GradientAtPosition(const ModelWeights& weights,
                                    const Adapter& live,
                                    const Term& term,
                                    const ScoredSample& sample,
                                    int64_t position,
                                    const MicroBatchOptions& options) {
  const std::string problem = ProblemWithPositions(term);
  TORCH_CHECK(problem.empty(), "[position_gradient] ", problem);
  const std::vector<Term> terms = {LossAlone(term)};
  const ScoredSample one = CutToPosition(terms[0], sample, position);
  MicroBatchResult result =
      ComputeMicroBatch(weights, live, terms, {&one, 1}, options);
  PositionGradient gradient{.loss = result.sums[0].value(),
                            .unclipped = result.sums[0].true_value()};
  for (auto& layer : result.gradients) {
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      gradient.tensors.push_back(std::move(pair.a));
      gradient.tensors.push_back(std::move(pair.b));
    }
  }
  return gradient;
}

double DotProduct(const std::vector<at::Tensor>& a,
                  const std::vector<at::Tensor>& b) {
  TORCH_CHECK(a.size() == b.size(),
              "[position_gradient] gradients of ",
              a.size(),
              " and ",
              b.size(),
              " tensors have no dot product");
  at::NoGradGuard no_grad;
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum +=
        at::dot(a[i].flatten().to(at::kDouble), b[i].flatten().to(at::kDouble))
            .item<double>();
  }
  return sum;
}

}  // namespace dapd
