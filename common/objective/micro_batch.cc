#include "common/objective/micro_batch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/objective/token_routing.h"
#include "common/objective/view_pass.h"
#include "common/tensor/torch_bridge.h"
#include "common/timeline/timeline.h"

namespace dapd {
namespace {

// What a term's sums over the micro-batch are divided by.
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
  const ModelWeights& weights;
  const Adapter& live;
  const std::vector<Term>& terms;
  std::span<const ScoredSample> samples;
  std::vector<const Views*> views;  // of the samples
  // Of each term: the gradient's factor over all its denominator.
  std::vector<double> term_weights;
  HeadLossOptions head;
  PassLimits limits;
  ForwardAhead* ahead;                   // null: without gradient
  std::map<size_t, TokenRoutes> routes;  // by term, of routed ones
  Timeline* timeline = nullptr;
};

// The scored tokens of a view.
at::Tensor ScoredIds(const View& view, at::Device device) {
  const auto first = view.input_ids.begin() + view.scored_from;
  return at::tensor(at::ArrayRef<int32_t>(
                        &*first, static_cast<size_t>(view.scored_count)))
      .to(device, at::kLong);
}

// Which pass each token of each sample takes, for the terms where that differs.
std::map<size_t, TokenRoutes> RouteTerms(const Pass& pass) {
  std::map<size_t, TokenRoutes> routes;
  for (size_t k = 0; k < pass.terms.size(); ++k) {
    const Term& term = pass.terms[k];
    const auto* routed = std::get_if<Routed>(&term.target);
    if (routed == nullptr) continue;
    std::vector<at::Tensor> first;
    std::vector<at::Tensor> second;
    int64_t tokens = 0;
    for (const ScoredSample& sample : pass.samples) {
      const View& view = sample.views[static_cast<size_t>(term.student)];
      if (view.scored_count == 0 || LacksTarget(term, sample.views)) {
        first.push_back(at::empty({0}, pass.weights.device()));
        second.push_back(first.back());
        continue;
      }
      tokens += view.scored_count;
      const at::Tensor ids = ScoredIds(view, pass.weights.device());
      for (const auto& [logprobs, teacher] :
           {std::pair{&first, routed->first},
            std::pair{&second, routed->second}}) {
        logprobs->push_back(TokenLogprobsOf(pass.weights.head,
                                            sample.scores.at(teacher),
                                            ids,
                                            pass.head.temperature));
      }
    }
    if (tokens > 0) routes[k] = RouteTokens(*routed, first, second);
  }
  return routes;
}

HeadTerm HeadTermOf(const Pass& pass, size_t k, size_t sample) {
  const Term& term = pass.terms[k];
  HeadTerm head_term = {.target = &term.target,
                        .divergence = term.divergence,
                        .support = term.support,
                        .token_weight = pass.term_weights[k],
                        .skip_tokens = term.skip_tokens};
  for (const TeacherPass& teacher : PassesOf(term.target)) {
    head_term.passes.push_back(&pass.samples[sample].scores.at(teacher));
  }
  if (std::holds_alternative<OneHot>(term.target)) {
    head_term.ids =
        ScoredIds((*pass.views[sample])[static_cast<size_t>(term.student)],
                  pass.weights.device());
  }
  if (term.reduction != Reduction::kMicroToken) {
    head_term.token_weight /=
        static_cast<double>(TokensOf(term, *pass.views[sample]));
  }
  if (const auto found = pass.routes.find(k); found != pass.routes.end()) {
    head_term.route = found->second.route[sample];
    head_term.token_weights = found->second.token_weights[sample];
  }
  return head_term;
}

// log(p / p_sampler) of each token that the sampler drew for a part's answer,
// bounded so that its exponential is finite; undefined if no term asks for it,
// or the sampler's are not known.
at::Tensor SamplerLogRatios(const Pass& pass,
                            const PackPart& part,
                            std::span<const at::Tensor> hidden) {
  constexpr double kBound = 20.0;
  const ScoredSample& sample = pass.samples[part.sample];
  const auto student = std::ranges::find(part.students, ViewName::kNoneRollout);
  const bool is_asked = student != part.students.end() &&
                        std::ranges::any_of(pass.terms, [](const Term& term) {
                          return term.importance != Importance::kNone;
                        });
  const View& view = sample.views[static_cast<size_t>(ViewName::kNoneRollout)];
  if (!is_asked || static_cast<int64_t>(sample.sampler_logprobs.size()) !=
                       view.scored_count) {
    return {};
  }
  const auto index = static_cast<size_t>(student - part.students.begin());
  const at::Device device = pass.weights.device();
  const at::Tensor live = TokenLogprobsOf(pass.weights.head,
                                          {.hidden = hidden[index]},
                                          ScoredIds(view, device),
                                          /*temperature=*/1.0);
  return (live - at::tensor(sample.sampler_logprobs).to(device))
      .clamp(-kBound, kBound);
}

// The factor of each token's loss, [n] float32; undefined: 1.
at::Tensor ImportanceOf(const Term& term, const at::Tensor& log_ratios) {
  if (term.importance == Importance::kNone || !log_ratios.defined()) return {};
  const at::Tensor ratios = log_ratios.exp().clamp_max(term.importance_cap);
  if (term.importance == Importance::kToken) return ratios;
  return ratios.slice(0, term.skip_tokens)
      .mean()
      .expand_as(ratios)
      .contiguous();
}

// An answer's sums as its term's reduction adds them up.
DivergenceSums Reduced(const Term& term, DivergenceSums sums) {
  if (term.reduction == Reduction::kMicroToken) {
    sums.denominator = static_cast<double>(sums.tokens);
    return sums;
  }
  sums.clipped /= static_cast<double>(sums.tokens);
  sums.unclipped /= static_cast<double>(sums.tokens);
  sums.denominator = 1.0;
  return sums;
}

// The students of a part. Those whose tokens' log-probabilities are known of
// the sampler are asked for theirs.
std::vector<HeadStudent> StudentsOf(const Pass& pass,
                                    const PackPart& part,
                                    std::span<const at::Tensor> hidden) {
  const ScoredSample& sample = pass.samples[part.sample];
  std::vector<HeadStudent> students;
  for (size_t i = 0; i < hidden.size(); ++i) {
    students.push_back({.hidden = hidden[i]});
    // Nothing reads the hidden states behind their gradient.
    if (pass.ahead != nullptr) students.back().gradient = hidden[i];
    if (part.students[i] == ViewName::kNoneRollout &&
        !sample.sampler_logprobs.empty()) {
      students.back().ids =
          ScoredIds(sample.views[static_cast<size_t>(ViewName::kNoneRollout)],
                    pass.weights.device());
    }
  }
  return students;
}

SamplerMismatch MismatchOf(const std::vector<at::Tensor>& token_logprobs,
                           const ScoredSample& sample) {
  SamplerMismatch mismatch;
  for (const at::Tensor& logprobs : token_logprobs) {
    if (!logprobs.defined()) continue;
    const at::Tensor host = logprobs.to(at::kCPU).contiguous();
    mismatch += CompareLogprobs(
        {host.const_data_ptr<float>(), static_cast<size_t>(host.numel())},
        sample.sampler_logprobs);
  }
  return mismatch;
}

// Losses of a part's students against their targets; adds to `result`.
// `hidden`: one per student; their gradients take their place where there are
// any.
void RunHead(const Pass& pass,
             const PackPart& part,
             std::span<const at::Tensor> hidden,
             MicroBatchResult& result) {
  const at::Tensor log_ratios = SamplerLogRatios(pass, part, hidden);
  std::vector<HeadTerm> head_terms;
  std::vector<size_t> indices;
  for (size_t k = 0; k < pass.terms.size(); ++k) {
    const Term& term = pass.terms[k];
    const auto student =
        std::find(part.students.begin(), part.students.end(), term.student);
    if (student == part.students.end() ||
        TokensOf(term, *pass.views[part.sample]) == 0) {
      continue;
    }
    head_terms.push_back(HeadTermOf(pass, k, part.sample));
    HeadTerm& head_term = head_terms.back();
    head_term.student = static_cast<size_t>(student - part.students.begin());
    if (const at::Tensor importance = ImportanceOf(term, log_ratios);
        importance.defined()) {
      head_term.token_weights = head_term.token_weights.defined()
                                    ? head_term.token_weights * importance
                                    : importance;
    }
    indices.push_back(k);
  }
  const HeadLoss loss =
      ComputeHeadLoss(pass.weights.head,
                      StudentsOf(pass, part, hidden),
                      head_terms,
                      pass.head,
                      /*with_gradient=*/pass.ahead != nullptr);
  for (size_t i = 0; i < indices.size(); ++i) {
    result.sums[indices[i]] += Reduced(pass.terms[indices[i]], loss.sums[i]);
  }
  result.sampler_mismatch +=
      MismatchOf(loss.token_logprobs, pass.samples[part.sample]);
}

// Forward, losses and, where it is wanted, backward of some parts side by side.
MicroBatchResult RunPack(const Pass& pass, std::span<const PackPart> parts) {
  const PackedViews packed =
      PackViews(ViewsOf(parts, pass.views), pass.weights.device());
  std::unique_ptr<TrainingPass> training;
  at::Tensor hidden;
  {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "forward");
    if (pass.ahead != nullptr) {
      training = pass.ahead->Take(parts, pass.views, packed);
      hidden = training->hidden();
    } else {
      hidden = ForwardWithoutGradient(
          pass.weights, pass.live, packed.tokens, packed.rows);
    }
  }
  const std::vector<at::Tensor> by_view =
      hidden.split_with_sizes(packed.counts, 0);
  MicroBatchResult result;
  result.sums.resize(pass.terms.size());
  std::span<const at::Tensor> rest = by_view;
  for (const PackPart& part : parts) {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "losses");
    const size_t count = part.students.size();
    RunHead(pass, part, rest.first(count), result);
    rest = rest.subspan(count);
  }
  if (training != nullptr) {
    const ScopedSlice slice(pass.timeline, kComputeTrack, "backward");
    result.gradients = training->Backward(hidden);
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
  sum->sampler_mismatch += pack.sampler_mismatch;
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

MicroBatchResult RunSamples(Pass pass) {
  at::NoGradGuard no_grad;
  pass.routes = RouteTerms(pass);
  MicroBatchResult sum;
  sum.sums.resize(pass.terms.size());
  for (const Completion completion :
       {Completion::kReference, Completion::kRollout}) {
    for (const Pack& pack :
         PlanPacks(pass.terms, pass.views, completion, pass.limits)) {
      RunParts(pass, pack, &sum);
    }
  }
  // Answers without a scored token were in no pack.
  for (size_t k = 0; k < pass.terms.size(); ++k) {
    sum.sums[k].denominator = DenominatorOf(pass.terms[k], pass.samples);
    const auto routes = pass.routes.find(k);
    if (routes != pass.routes.end()) {
      sum.sums[k].regimes = routes->second.counts;
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
  Pass pass{weights,
            live,
            terms,
            samples,
            ViewsOfSamples(samples),
            {},
            options.head,
            options.limits,
            options.ahead == nullptr ? &nothing : options.ahead,
            {},
            options.timeline};
  for (const Term& term : terms) {
    const double denominator = DenominatorOf(term, samples);
    pass.term_weights.push_back(
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
                     /*ahead=*/nullptr,
                     {}})
      .sums;
}

std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const std::map<WeightSet, const Adapter*>& adapters,
    const std::vector<TeacherPass>& passes,
    const Views& views) {
  at::NoGradGuard no_grad;
  const auto adapter_of = [&](const TeacherPass& pass) {
    return pass.weights == WeightSet::kBase ? nullptr
                                            : adapters.at(pass.weights);
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
