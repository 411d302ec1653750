#include "common/objective/micro_batch.h"

#include <algorithm>
#include <utility>

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

// Losses of the students that score one completion; adds to `sums`. Returns the
// gradients of their `hidden`.
std::vector<at::Tensor> RunHead(const Pass& pass,
                                const ScoredSample& sample,
                                std::span<const ViewName> students,
                                std::span<const at::Tensor> hidden,
                                std::vector<DivergenceSums>& sums) {
  std::vector<HeadTerm> head_terms;
  std::vector<size_t> indices;
  for (size_t k = 0; k < pass.terms.size(); ++k) {
    const Term& term = pass.terms[k];
    const auto student =
        std::find(students.begin(), students.end(), term.student);
    if (student == students.end()) continue;
    head_terms.push_back(
        {.teacher = &sample.scores.at(term.teacher),
         .clip = term.clip,
         .token_weight = pass.token_weights[k],
         .student = static_cast<size_t>(student - students.begin())});
    indices.push_back(k);
  }
  HeadLoss loss = ComputeHeadLoss(
      pass.weights.head, hidden, head_terms, pass.head, pass.with_gradient);
  for (size_t i = 0; i < indices.size(); ++i) sums[indices[i]] += loss.sums[i];
  return std::move(loss.grad_hidden);
}

// Forward, losses and (with_gradient) backward of one sample; adds to `sums`.
void RunSample(const Pass& pass,
               const ScoredSample& sample,
               std::vector<DivergenceSums>& sums) {
  // Students that score the same completion side by side.
  std::vector<ViewName> students = StudentViews(pass.terms);
  const auto references =
      std::stable_partition(students.begin(), students.end(), ScoresRollout);
  const auto num_rollout = static_cast<size_t>(references - students.begin());
  const std::vector<at::Tensor> hidden = HiddenOfViews(
      pass.weights, &pass.live, Pick(sample.views, students), pass.recompute);
  std::vector<at::Tensor> detached;
  for (const at::Tensor& tensor : hidden) detached.push_back(tensor.detach());
  std::vector<at::Tensor> gradients;
  for (const auto& [first, count] :
       {std::pair(size_t{0}, num_rollout),
        std::pair(num_rollout, students.size() - num_rollout)}) {
    if (count == 0) continue;
    for (const at::Tensor& gradient :
         RunHead(pass,
                 sample,
                 std::span(students).subspan(first, count),
                 std::span(detached).subspan(first, count),
                 sums)) {
      gradients.push_back(gradient);
    }
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
