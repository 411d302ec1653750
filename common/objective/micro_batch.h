// The objective over one micro-batch: live forward, head loss, backward.
//
// A term's value is what its reduction makes of the scored tokens: their mean
// over the micro-batch (micro_token, where longer answers weigh more), or the
// mean of the answers' means; its gradient is accumulated into the live
// adapter. Since the number of scored tokens is known before, the samples can
// pass in packs (pack_plan.h): as many as fit into a number of tokens go
// through the model side by side, so memory does not grow with the micro-batch.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/model/training_pass.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/objective/divergence_sums.h"
#include "common/objective/forward_ahead.h"
#include "common/objective/head_loss.h"
#include "common/objective/pack_plan.h"
#include "common/objective/sampler_mismatch.h"
#include "common/terms/term.h"
#include "common/terms/view.h"

namespace dapd {

class Timeline;

// A sample with everything that the objective needs from its teachers: of views
// that score nothing (an answer of padding alone) nothing.
struct ScoredSample {
  std::string id;
  Views views;
  std::map<TeacherPass, TeacherScores> scores;
  // The sampler's log-probabilities, at temperature 1, of none_rollout's scored
  // tokens; empty: unknown.
  std::vector<float> sampler_logprobs;
};

struct MicroBatchOptions {
  HeadLossOptions head;
  // Factor of the micro-batch's gradient: 1 / (micro-batches of the step).
  double gradient_scale = 1.0;
  PassLimits limits;
  ForwardAhead* ahead = nullptr;  // passes of the same policy and limits
  // Gets the host's times of what is computed, which a GPU may do later; null:
  // nothing does.
  Timeline* timeline = nullptr;
};

struct MicroBatchResult {
  std::vector<DivergenceSums> sums;  // of each term
  std::vector<LoraLayer> gradients;  // by layer, where the adapter has tensors
  SamplerMismatch sampler_mismatch;  // where a term's student is none_rollout
};

// The gradient of gradient_scale * sum_k weight_k * value_k with respect to the
// live adapter. What was run ahead changes no bit of it (on a GPU with
// model.deterministic; without, its backward pass has no fixed bits). A pack
// for which there is not enough memory is run again without what is kept ahead,
// and then split, down to the views of one sample that score the same tokens;
// c10::OutOfMemoryError if even those do not fit, or if limits.splits_packs is
// false.
MicroBatchResult ComputeMicroBatch(const ModelWeights& weights,
                                   const Adapter& live,
                                   const std::vector<Term>& terms,
                                   std::span<const ScoredSample> samples,
                                   const MicroBatchOptions& options);

// Adds gradients to .grad of the live adapter's tensors.
void AddToGradient(const std::vector<LoraLayer>& gradients,
                   const Adapter& live);

// ComputeMicroBatch and AddToGradient.
std::vector<DivergenceSums> AccumulateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const MicroBatchOptions& options);

// The same sums without any gradient.
std::vector<DivergenceSums> EvaluateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const HeadLossOptions& options);

}  // namespace dapd
