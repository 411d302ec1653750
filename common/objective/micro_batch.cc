#include "common/objective/micro_batch.h"

#include <algorithm>

#include "common/objective/view_pass.h"

namespace dapd {
namespace {

std::vector<const View*> Pick(const Views& views,
                              const std::vector<ViewName>& names) {
  std::vector<const View*> picked;
  for (const ViewName name : names) {
    picked.push_back(&views[static_cast<size_t>(name)]);
  }
  return picked;
}

// Scored tokens of each term over the whole micro-batch.
std::vector<int64_t> CountTokens(const std::vector<Term>& terms,
                                 std::span<const ScoredSample> samples) {
  std::vector<int64_t> counts;
  for (const Term& term : terms) {
    int64_t count = 0;
    for (const ScoredSample& sample : samples) {
      count += sample.views[static_cast<size_t>(term.student)].scored_count;
    }
    counts.push_back(count);
  }
  return counts;
}

struct Pass {
  const ModelWeights& weights;
  const Adapter& live;
  const std::vector<Term>& terms;
  std::vector<double> token_weights;  // one a term
  HeadLossOptions head;
  bool recompute;
  bool with_gradient;
};

// Forward, losses and (with_gradient) backward of one sample; adds to `sums`.
void RunSample(const Pass& pass,
               const ScoredSample& sample,
               std::vector<DivergenceSums>& sums) {
  const std::vector<ViewName> students = StudentViews(pass.terms);
  const std::vector<const View*> views = Pick(sample.views, students);
  const std::vector<at::Tensor> hidden =
      HiddenOfViews(pass.weights, &pass.live, views, pass.recompute);
  std::vector<at::Tensor> gradients;
  for (size_t s = 0; s < students.size(); ++s) {
    std::vector<HeadTerm> head_terms;
    std::vector<size_t> indices;
    for (size_t k = 0; k < pass.terms.size(); ++k) {
      const Term& term = pass.terms[k];
      if (term.student != students[s]) continue;
      head_terms.push_back(
          {&sample.scores.at(term.teacher), term.clip, pass.token_weights[k]});
      indices.push_back(k);
    }
    const HeadLoss loss = ComputeHeadLoss(pass.weights.head,
                                          hidden[s].detach(),
                                          head_terms,
                                          pass.head,
                                          pass.with_gradient);
    for (size_t i = 0; i < indices.size(); ++i) {
      sums[indices[i]] += loss.sums[i];
    }
    gradients.push_back(loss.grad_hidden);
  }
  if (pass.with_gradient) torch::autograd::backward(hidden, gradients);
}

}  // namespace

std::vector<DivergenceSums> AccumulateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const MicroBatchOptions& options) {
  const std::vector<int64_t> counts = CountTokens(terms, samples);
  Pass pass{weights, live, terms, {}, options.head, options.recompute, true};
  for (size_t k = 0; k < terms.size(); ++k) {
    pass.token_weights.push_back(options.gradient_scale * terms[k].weight /
                                 static_cast<double>(counts[k]));
  }
  at::AutoGradMode with_grad(true);
  std::vector<DivergenceSums> sums(terms.size());
  for (const ScoredSample& sample : samples) RunSample(pass, sample, sums);
  return sums;
}

std::vector<DivergenceSums> EvaluateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const HeadLossOptions& options) {
  const Pass pass{weights,
                  live,
                  terms,
                  std::vector<double>(terms.size(), 0.0),
                  options,
                  /*recompute=*/false,
                  /*with_gradient=*/false};
  at::NoGradGuard no_grad;
  std::vector<DivergenceSums> sums(terms.size());
  for (const ScoredSample& sample : samples) RunSample(pass, sample, sums);
  return sums;
}

std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const Adapter* snapshot,
    const std::vector<TeacherPass>& passes,
    const Views& views) {
  at::NoGradGuard no_grad;
  std::map<TeacherPass, TeacherScores> scores;
  for (const TeacherWeights kind :
       {TeacherWeights::kBase, TeacherWeights::kSnapshot}) {
    std::vector<ViewName> names;
    for (const TeacherPass& pass : passes) {
      if (pass.weights == kind) names.push_back(pass.view);
    }
    if (names.empty()) continue;
    const Adapter* adapter =
        kind == TeacherWeights::kSnapshot ? snapshot : nullptr;
    const std::vector<at::Tensor> hidden =
        HiddenOfViews(weights, adapter, Pick(views, names));
    for (size_t i = 0; i < names.size(); ++i) {
      scores[{kind, names[i]}].hidden = hidden[i];
    }
  }
  return scores;
}

}  // namespace dapd
