#include "common/objective/micro_batch.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/objective/view_pass.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

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
  std::span<const ScoredSample> samples;
  std::vector<const Views*> views;    // of the samples
  std::vector<double> token_weights;  // one a term
  HeadLossOptions head;
  PassLimits limits;
  ForwardAhead* ahead;  // null: without gradient
};

// Losses of a part's students against their teachers; adds to `sums`. `hidden`:
// one a student. Returns their gradients.
std::vector<at::Tensor> RunHead(const Pass& pass,
                                const PackPart& part,
                                std::span<const at::Tensor> hidden,
                                std::vector<DivergenceSums>& sums) {
  std::vector<HeadTerm> head_terms;
  std::vector<size_t> indices;
  for (size_t k = 0; k < pass.terms.size(); ++k) {
    const Term& term = pass.terms[k];
    const auto student =
        std::find(part.students.begin(), part.students.end(), term.student);
    if (student == part.students.end()) continue;
    head_terms.push_back(
        {.teacher = &pass.samples[part.sample].scores.at(term.teacher),
         .clip = term.clip,
         .token_weight = pass.token_weights[k],
         .student = static_cast<size_t>(student - part.students.begin())});
    indices.push_back(k);
  }
  HeadLoss loss = ComputeHeadLoss(pass.weights.head,
                                  hidden,
                                  head_terms,
                                  pass.head,
                                  /*with_gradient=*/pass.ahead != nullptr);
  for (size_t i = 0; i < indices.size(); ++i) sums[indices[i]] += loss.sums[i];
  return std::move(loss.grad_hidden);
}

// Forward, losses and, where it is wanted, backward of some parts side by side.
MicroBatchResult RunPack(const Pass& pass, std::span<const PackPart> parts) {
  const PackedViews packed =
      PackViews(ViewsOf(parts, pass.views), pass.weights.device());
  std::unique_ptr<TrainingPass> training;
  at::Tensor hidden;
  if (pass.ahead != nullptr) {
    training = pass.ahead->Take(parts, pass.views, packed);
    hidden = training->hidden();
  } else {
    hidden = ForwardWithoutGradient(
        pass.weights, pass.live, packed.tokens, packed.rows);
  }
  const std::vector<at::Tensor> by_view =
      hidden.split_with_sizes(packed.counts, 0);
  MicroBatchResult result;
  result.sums.resize(pass.terms.size());
  std::vector<at::Tensor> grads;
  std::span<const at::Tensor> rest = by_view;
  for (const PackPart& part : parts) {
    const size_t count = part.students.size();
    for (const at::Tensor& grad :
         RunHead(pass, part, rest.first(count), result.sums)) {
      grads.push_back(grad);
    }
    rest = rest.subspan(count);
  }
  if (training != nullptr) {
    result.gradients = training->Backward(at::cat(grads));
  }
  return result;
}

// Calls `visit` with each pair of tensors of the adapter's places.
template <typename Visit>
void ForEachTensor(const std::vector<LoraLayer>& layers,
                   const std::vector<LoraLayer>& others,
                   const Visit& visit) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (size_t p = 0; p < layers[layer].size(); ++p) {
      if (!layers[layer][p].a.defined()) continue;
      visit(layers[layer][p].a, others[layer][p].a);
      visit(layers[layer][p].b, others[layer][p].b);
    }
  }
}

void AddPack(MicroBatchResult pack, MicroBatchResult* sum) {
  for (size_t k = 0; k < pack.sums.size(); ++k) sum->sums[k] += pack.sums[k];
  if (sum->gradients.empty()) {
    sum->gradients = std::move(pack.gradients);
    return;
  }
  ForEachTensor(
      pack.gradients,
      sum->gradients,
      [](const at::Tensor& from, const at::Tensor& to) { to.add_(from); });
}

// The parts as one pack or, where memory does not suffice, as two and so on.
// Nothing is added to `sum` before its pack is complete.
void RunParts(const Pass& pass,
              std::span<const PackPart> parts,
              MicroBatchResult* sum) {
  bool retries = false;
  try {
    AddPack(RunPack(pass, parts), sum);
    return;
  } catch (const c10::Error& error) {
    if (!IsOutOfMemory(error)) throw;
    retries = pass.ahead != nullptr && pass.ahead->GiveUp();
    if (!retries && parts.size() == 1) throw;
  }
  if (retries) {
    RunParts(pass, parts, sum);
    return;
  }
  LogWarning(absl::StrCat("not enough memory for ",
                          parts.size(),
                          " parts of a micro-batch side by side; splitting "
                          "them. Lower trainer.pack_tokens or "
                          "trainer.activation_memory_mib"));
  const size_t half = parts.size() / 2;
  RunParts(pass, parts.first(half), sum);
  RunParts(pass, parts.subspan(half), sum);
}

MicroBatchResult RunSamples(const Pass& pass) {
  at::NoGradGuard no_grad;
  MicroBatchResult sum;
  sum.sums.resize(pass.terms.size());
  for (const Completion completion :
       {Completion::kReference, Completion::kRollout}) {
    for (const Pack& pack :
         PlanPacks(pass.terms, pass.views, completion, pass.limits)) {
      RunParts(pass, pack, &sum);
    }
  }
  return sum;
}

std::vector<const Views*> ViewsOfSamples(
    std::span<const ScoredSample> samples) {
  std::vector<const Views*> views;
  for (const ScoredSample& sample : samples) views.push_back(&sample.views);
  return views;
}

}  // namespace

MicroBatchResult ComputeMicroBatch(const ModelWeights& weights,
                                   const Adapter& live,
                                   const std::vector<Term>& terms,
                                   std::span<const ScoredSample> samples,
                                   const MicroBatchOptions& options) {
  ByteBudget no_memory(0);
  ForwardAhead nothing(weights, live, terms, options.limits, no_memory);
  const std::vector<int64_t> counts = CountTokens(terms, samples);
  Pass pass{weights,
            live,
            terms,
            samples,
            ViewsOfSamples(samples),
            {},
            options.head,
            options.limits,
            options.ahead == nullptr ? &nothing : options.ahead};
  for (size_t k = 0; k < terms.size(); ++k) {
    pass.token_weights.push_back(options.gradient_scale * terms[k].weight /
                                 static_cast<double>(counts[k]));
  }
  return RunSamples(pass);
}

void AddToGradient(const std::vector<LoraLayer>& gradients,
                   const Adapter& live) {
  at::NoGradGuard no_grad;
  ForEachTensor(gradients,
                live.layers,
                [](const at::Tensor& gradient, at::Tensor parameter) {
                  if (parameter.grad().defined()) {
                    parameter.mutable_grad().add_(gradient);
                  } else {
                    // A copy: it may be a part of a tensor, which an optimizer
                    // cannot clear.
                    parameter.mutable_grad() = gradient.clone();
                  }
                });
}

std::vector<DivergenceSums> AccumulateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const MicroBatchOptions& options) {
  MicroBatchResult result =
      ComputeMicroBatch(weights, live, terms, samples, options);
  AddToGradient(result.gradients, live);
  return std::move(result.sums);
}

std::vector<DivergenceSums> EvaluateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const HeadLossOptions& options) {
  return RunSamples({weights,
                     live,
                     terms,
                     samples,
                     ViewsOfSamples(samples),
                     std::vector<double>(terms.size(), 0.0),
                     options,
                     PassLimits{},
                     /*ahead=*/nullptr})
      .sums;
}

std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const Adapter* snapshot,
    const std::vector<TeacherPass>& passes,
    const Views& views) {
  at::NoGradGuard no_grad;
  const auto adapter_of = [&](const TeacherPass& pass) {
    return pass.weights == WeightSet::kSnapshot ? snapshot : nullptr;
  };
  // A view that two passes read with the same weights is computed once.
  std::map<const Adapter*, std::set<ViewName>> views_of;
  for (const TeacherPass& pass : passes) {
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
    scores[pass].hidden = hidden_of.at({adapter_of(pass), pass.view});
  }
  return scores;
}

}  // namespace dapd
