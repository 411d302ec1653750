#include "common/objective/micro_batch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/objective/part_loss.h"
#include "common/objective/view_pass.h"
#include "common/tensor/device_copy.h"
#include "common/tensor/torch_bridge.h"
#include "common/timeline/timeline.h"

namespace dapd {
namespace {

// Returns the divisor of a term's sums over the micro-batch.
double DenominatorOf(const Term& term, std::span<const ScoredSample> samples) {
  if (term.reduction == Reduction::kSeqMeanKeepMasked) {
    return static_cast<double>(samples.size());
  }
  int64_t tokens = 0;
  int64_t answers = 0;
  for (const ScoredSample& sample : samples) {
    const int64_t count = TokensOf(term, sample.views);
    tokens += count;
    answers += count > 0 ? 1 : 0;
  }
  return static_cast<double>(
      term.reduction == Reduction::kMicroToken ? tokens : answers);
}

struct Pass {
  LossInputs loss;
  const Adapter& live;
  PassLimits limits;
  ForwardAhead*
      ahead;  // passes that were run ahead; null: no gradient is wanted
  Timeline* timeline = nullptr;
};

MicroBatchResult NoSums(size_t terms) {
  MicroBatchResult result;
  result.sums.resize(terms);
  result.by_teacher.resize(terms);
  return result;
}

// Runs forward pass, losses and, if wanted, backward pass of some parts side by
// side.
MicroBatchResult RunPack(const Pass& pass, std::span<const PackPart> parts) {
  const PackedViews packed =
      PackViews(ViewsOf(parts, pass.loss.views), pass.loss.weights.device());
  std::unique_ptr<TrainingPass> training;
  at::Tensor hidden;
  {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "forward");
    if (pass.ahead != nullptr) {
      training = pass.ahead->Take(parts, pass.loss.views, packed);
      hidden = training->hidden();
    } else {
      hidden = ForwardWithoutGradient(
          pass.loss.weights, pass.live, packed.tokens, packed.rows);
    }
  }
  const std::vector<at::Tensor> by_view =
      hidden.split_with_sizes(packed.counts, 0);
  MicroBatchResult result = NoSums(pass.loss.terms.size());
  std::span<const at::Tensor> rest = by_view;
  for (const PackPart& part : parts) {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "losses");
    const size_t count = part.students.size();
    AddPartLoss(pass.loss, part, rest.first(count), result);
    rest = rest.subspan(count);
  }
  if (training != nullptr) {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "backward");
    // AddPartLoss has replaced the hidden states by the gradient of the loss
    // with respect to them.
    result.gradients = training->Backward(/*grad_hidden=*/hidden);
  }
  return result;
}

// Calls `visit` with both tensors of each place of the adapter.
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
  // This comes first: a device without memory for the kernels has not begun,
  // and the pack is run again.
  if (sum->gradients.empty()) {
    sum->gradients = std::move(pack.gradients);
  } else {
    ForEachTensor(
        pack.gradients,
        sum->gradients,
        [](const at::Tensor& from, const at::Tensor& to) { to.add_(from); });
  }
  sum->sampler_mismatch += pack.sampler_mismatch;
  for (size_t k = 0; k < pack.sums.size(); ++k) {
    sum->sums[k] += pack.sums[k];
    for (const auto& [teacher, sums] : pack.by_teacher[k]) {
      sum->by_teacher[k][teacher] += sums;
    }
  }
}

// Computes the parts as one pack or, if memory does not suffice, as two packs
// and so on. Adds nothing to `sum` before its pack is complete.
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
  TORCH_CHECK_WITH(OutOfMemoryError,
                   pass.limits.splits_packs,
                   "not enough memory for ",
                   parts.size(),
                   " parts of a micro-batch side by side, and "
                   "model.deterministic forbids splitting packs, which would "
                   "change the last bits; lower trainer.pack_tokens, or "
                   "trainer.activation_memory_mib if it is set");
  LogWarning(absl::StrCat("not enough memory for ",
                          parts.size(),
                          " parts of a micro-batch side by side; splitting "
                          "them. Lower trainer.pack_tokens or "
                          "trainer.activation_memory_mib"));
  const size_t half = parts.size() / 2;
  RunParts(pass, parts.first(half), sum);
  RunParts(pass, parts.subspan(half), sum);
}

// Returns the counts of all routed terms, [terms, kNumRegimes]; undefined
// without routed terms.
at::Tensor CountsOf(const std::map<size_t, TokenRoutes>& routes) {
  std::vector<at::Tensor> counts;
  for (const auto& [k, of_term] : routes) counts.push_back(of_term.counts);
  return counts.empty() ? at::Tensor() : at::stack(counts);
}

MicroBatchResult RunSamples(Pass pass) {
  at::NoGradGuard no_grad;
  pass.loss.head.vocabulary = VocabularyOf(pass.loss);
  pass.loss.routes = RouteTerms(pass.loss);
  // They arrive before the sums of the first part, for which the host waits
  // anyway.
  HostCopies counts({CountsOf(pass.loss.routes)});
  MicroBatchResult sum = NoSums(pass.loss.terms.size());
  for (const Completion completion :
       {Completion::kReference, Completion::kRollout}) {
    for (const Pack& pack :
         PlanPacks(pass.loss.terms, pass.loss.views, completion, pass.limits)) {
      RunParts(pass, pack, &sum);
    }
  }
  // Answers without a scored token were in no pack.
  for (size_t k = 0; k < pass.loss.terms.size(); ++k) {
    sum.sums[k].denominator =
        DenominatorOf(pass.loss.terms[k], pass.loss.samples);
  }
  const at::Tensor by_term = counts.Take().front();
  int64_t row = 0;
  for (const auto& [k, routes] : pass.loss.routes) {
    std::copy_n(by_term[row++].const_data_ptr<int64_t>(),
                kNumRegimes,
                sum.sums[k].regimes.begin());
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
  Pass pass{{weights,
             terms,
             samples,
             ViewsOfSamples(samples),
             /*term_weights=*/{},
             options.head,
             /*with_gradient=*/true},
            live,
            options.limits,
            options.ahead == nullptr ? &nothing : options.ahead,
            options.timeline};
  for (const Term& term : terms) {
    const double denominator = DenominatorOf(term, samples);
    pass.loss.term_weights.push_back(
        denominator > 0.0 ? options.gradient_scale * term.weight / denominator
                          : 0.0);
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

MicroBatchResult AccumulateMicroBatch(const ModelWeights& weights,
                                      const Adapter& live,
                                      const std::vector<Term>& terms,
                                      std::span<const ScoredSample> samples,
                                      const MicroBatchOptions& options) {
  MicroBatchResult result =
      ComputeMicroBatch(weights, live, terms, samples, options);
  AddToGradient(result.gradients, live);
  return result;
}

std::vector<DivergenceSums> EvaluateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const HeadLossOptions& options) {
  return RunSamples({{weights,
                      terms,
                      samples,
                      ViewsOfSamples(samples),
                      std::vector<double>(terms.size(), 0.0),
                      options,
                      /*with_gradient=*/false},
                     live,
                     PassLimits{},
                     /*ahead=*/nullptr})
      .sums;
}

}  // namespace dapd
