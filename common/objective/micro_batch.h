// Computes the objective over one micro-batch: live forward pass, head loss,
// backward pass.
//
// The value of a term is the result of its reduction over the scored tokens:
// their mean over the micro-batch (micro_token, where longer answers weigh
// more), or the mean of the answers' means. Its gradient is accumulated into
// the live adapter. The number of scored tokens is known beforehand, so the
// samples can pass in packs (pack_plan.h): as many samples as fit into a number
// of tokens go through the model side by side, and memory does not grow with
// the micro-batch.
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

// A sample with everything that the objective needs from its teachers. Views
// that score nothing (an answer of padding alone) have no scores.
struct ScoredSample {
  std::string id;
  Views views;
  std::map<TeacherPass, TeacherScores> scores;
  // Log-probabilities by the sampler, at temperature 1, of the scored tokens of
  // none_rollout; empty: unknown.
  std::vector<float> sampler_logprobs;
  // The teacher that the row names; empty: the student's own base.
  std::string teacher;
};

struct MicroBatchOptions {
  HeadLossOptions head;
  // Factor of the micro-batch's gradient: 1 / (micro-batches of the step).
  double gradient_scale = 1.0;
  PassLimits limits;
  ForwardAhead* ahead =
      nullptr;  // passes run ahead with the same policy and limits; null: none
  // Gets the times of the computations on the host, which a GPU may do later;
  // null: no timeline.
  Timeline* timeline = nullptr;
};

struct MicroBatchResult {
  std::vector<DivergenceSums> sums;       // one per term
  std::vector<SumsByTeacher> by_teacher;  // one per term
  std::vector<LoraLayer>
      gradients;  // by layer; undefined where the adapter has no tensor
  SamplerMismatch
      sampler_mismatch;  // measured if the student of a term is none_rollout
};

// Returns the sums, and the gradient of gradient_scale * sum_k weight_k *
// value_k with respect to the live adapter. Passes that were run ahead change
// no bit of it; on a GPU this holds with model.deterministic only, since the
// backward pass has no fixed bits otherwise. A pack that does not fit into
// memory is run again after everything kept ahead is dropped, and then in
// halves, down to the views of one sample that score the same tokens. Throws
// c10::OutOfMemoryError if even these do not fit, or if limits.splits_packs is
// false.
MicroBatchResult ComputeMicroBatch(const ModelWeights& weights,
                                   const Adapter& live,
                                   const std::vector<Term>& terms,
                                   std::span<const ScoredSample> samples,
                                   const MicroBatchOptions& options);

// Adds `gradients` to .grad of the live adapter's tensors.
void AddToGradient(const std::vector<LoraLayer>& gradients,
                   const Adapter& live);

// Calls ComputeMicroBatch and AddToGradient.
MicroBatchResult AccumulateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const MicroBatchOptions& options);

// Returns the sums of ComputeMicroBatch and computes no gradient.
std::vector<DivergenceSums> EvaluateMicroBatch(
    const ModelWeights& weights,
    const Adapter& live,
    const std::vector<Term>& terms,
    std::span<const ScoredSample> samples,
    const HeadLossOptions& options);

}  // namespace dapd
