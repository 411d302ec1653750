#include "common/objective/micro_batch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/log.h"
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

// LibTorch has a type of its own for a GPU's; on the CPU the message tells.
bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         absl::StrContains(error.what(), "DefaultCPUAllocator");
}

struct Pass {
  const ModelWeights& weights;
  const Adapter& live;
  const std::vector<Term>& terms;
  std::vector<double> token_weights;  // one a term
  HeadLossOptions head;
  PassLimits limits;
  bool with_gradient;
};

// Student views of one sample that score the same tokens: what is never split.
struct Part {
  const ScoredSample* sample;
  std::vector<ViewName> students;
};

std::vector<Part> SplitIntoParts(const std::vector<Term>& terms,
                                 std::span<const ScoredSample> samples) {
  std::vector<Part> parts;
  for (const ScoredSample& sample : samples) {
    for (const bool rollout : {true, false}) {
      Part part = {&sample, {}};
      for (const ViewName view : StudentViews(terms)) {
        if (ScoresRollout(view) == rollout) part.students.push_back(view);
      }
      if (!part.students.empty()) parts.push_back(std::move(part));
    }
  }
  return parts;
}

// How many of the first parts make a pack of at most `tokens` tokens; at least
// one.
size_t PackSize(std::span<const Part> parts, int64_t tokens) {
  int64_t sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    sum += PlanPass(Pick(parts[i].sample->views, parts[i].students)).num_tokens;
    if (sum > tokens && i > 0) return i;
  }
  return parts.size();
}

// Losses of a part's students against their teachers; adds to `sums`. `hidden`:
// one a student. Returns their gradients.
std::vector<at::Tensor> RunHead(const Pass& pass,
                                const Part& part,
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
        {.teacher = &part.sample->scores.at(term.teacher),
         .clip = term.clip,
         .token_weight = pass.token_weights[k],
         .student = static_cast<size_t>(student - part.students.begin())});
    indices.push_back(k);
  }
  HeadLoss loss = ComputeHeadLoss(
      pass.weights.head, hidden, head_terms, pass.head, pass.with_gradient);
  for (size_t i = 0; i < indices.size(); ++i) sums[indices[i]] += loss.sums[i];
  return std::move(loss.grad_hidden);
}

struct PackResult {
  std::vector<DivergenceSums> sums;
  std::vector<LoraLayer> gradients;  // by layer; empty without gradient
};

// Forward, losses and (with_gradient) backward of some parts side by side.
PackResult RunPack(const Pass& pass, std::span<const Part> parts) {
  std::vector<const View*> views;
  for (const Part& part : parts) {
    for (const View* view : Pick(part.sample->views, part.students)) {
      views.push_back(view);
    }
  }
  const PackedViews packed = PackViews(views, pass.weights.device());
  std::optional<TrainingPass> training;
  at::Tensor hidden;
  if (pass.with_gradient) {
    training.emplace(pass.weights,
                     pass.live,
                     packed.tokens,
                     packed.rows,
                     pass.limits.activation_bytes);
    hidden = training->hidden();
  } else {
    hidden = ForwardWithoutGradient(
        pass.weights, pass.live, packed.tokens, packed.rows);
  }
  const std::vector<at::Tensor> by_view =
      hidden.split_with_sizes(packed.counts, 0);
  PackResult result;
  result.sums.resize(pass.terms.size());
  std::vector<at::Tensor> grads;
  std::span<const at::Tensor> rest = by_view;
  for (const Part& part : parts) {
    const size_t count = part.students.size();
    for (const at::Tensor& grad :
         RunHead(pass, part, rest.first(count), result.sums)) {
      grads.push_back(grad);
    }
    rest = rest.subspan(count);
  }
  if (training.has_value()) {
    result.gradients = training->Backward(at::cat(grads));
  }
  return result;
}

void AddToGradients(const Adapter& live,
                    const std::vector<LoraLayer>& gradients) {
  const auto add = [](at::Tensor parameter, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    if (parameter.grad().defined()) {
      parameter.mutable_grad().add_(gradient);
    } else {
      // A copy: it may be a part of a tensor, which an optimizer cannot clear.
      parameter.mutable_grad() = gradient.clone();
    }
  };
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    for (size_t p = 0; p < gradients[layer].size(); ++p) {
      add(live.layers[layer][p].a, gradients[layer][p].a);
      add(live.layers[layer][p].b, gradients[layer][p].b);
    }
  }
}

// The parts as one pack or, where memory does not suffice, as two and so on.
// Nothing is added to a gradient or to `sums` before its pack is complete.
void RunParts(const Pass& pass,
              std::span<const Part> parts,
              std::vector<DivergenceSums>& sums) {
  PackResult result;
  bool fits = true;
  try {
    result = RunPack(pass, parts);
  } catch (const c10::Error& error) {
    if (!IsOutOfMemory(error) || parts.size() == 1) throw;
    fits = false;
  }
  if (!fits) {
    LogWarning(absl::StrCat("not enough memory for ",
                            parts.size(),
                            " parts of a micro-batch side by side; splitting "
                            "them. Lower trainer.pack_tokens or "
                            "trainer.activation_memory_mib"));
    const size_t half = parts.size() / 2;
    RunParts(pass, parts.first(half), sums);
    RunParts(pass, parts.subspan(half), sums);
    return;
  }
  for (size_t k = 0; k < sums.size(); ++k) sums[k] += result.sums[k];
  AddToGradients(pass.live, result.gradients);
}

std::vector<DivergenceSums> RunSamples(const Pass& pass,
                                       std::span<const ScoredSample> samples) {
  at::NoGradGuard no_grad;
  std::vector<DivergenceSums> sums(pass.terms.size());
  const std::vector<Part> all = SplitIntoParts(pass.terms, samples);
  std::span<const Part> parts = all;
  while (!parts.empty()) {
    const size_t size = PackSize(parts, pass.limits.pack_tokens);
    RunParts(pass, parts.first(size), sums);
    parts = parts.subspan(size);
  }
  return sums;
}

}  // namespace

PassLimits MakePassLimits(const TrainerSection& trainer) {
  return {.pack_tokens = trainer.pack_tokens,
          .activation_bytes = trainer.recompute
                                  ? trainer.activation_memory_mib << 20
                                  : kUnlimitedActivations};
}

std::vector<DivergenceSums> AccumulateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const MicroBatchOptions& options) {
  const std::vector<int64_t> counts = CountTokens(terms, samples);
  Pass pass{weights, live, terms, {}, options.head, options.limits, true};
  for (size_t k = 0; k < terms.size(); ++k) {
    pass.token_weights.push_back(options.gradient_scale * terms[k].weight /
                                 static_cast<double>(counts[k]));
  }
  return RunSamples(pass, samples);
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
                     std::vector<double>(terms.size(), 0.0),
                     options,
                     PassLimits{},
                     /*with_gradient=*/false},
                    samples);
}

std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const Adapter* snapshot,
    const std::vector<TeacherPass>& passes,
    const Views& views) {
  at::NoGradGuard no_grad;
  const auto adapter_of = [&](const TeacherPass& pass) {
    return pass.weights == TeacherWeights::kSnapshot ? snapshot : nullptr;
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
