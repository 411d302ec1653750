// The objective over one micro-batch: live forward, head loss, backward.
//
// A term's value is the sum over all scored tokens of the micro-batch divided
// by their number (a token mean, so longer answers weigh more); its gradient is
// accumulated into the live adapter. Since the number of scored tokens is known
// before, the samples can pass in packs: as many as fit into a number of tokens
// go through the model side by side, so memory does not grow with the
// micro-batch. Which samples share a pack follows from the micro-batch alone.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/data/views.h"
#include "common/model/adapter.h"
#include "common/model/training_pass.h"
#include "common/model/weights.h"
#include "common/objective/clipped_kl.h"
#include "common/objective/head_loss.h"
#include "common/objective/terms.h"

namespace dapd {

// A sample with everything that the objective needs from its teachers.
struct ScoredSample {
  std::string id;
  Views views;
  std::map<TeacherPass, TeacherScores> scores;
};

// What one pass through the model may take.
struct PassLimits {
  // Tokens of a pack; a sample that alone has more is a pack of its own.
  int64_t pack_tokens = 16384;
  // Kept activations of a pack; the layers beyond run again (TrainingPass).
  int64_t activation_bytes = kUnlimitedActivations;
};
// Those of the configuration.
PassLimits MakePassLimits(const TrainerSection& trainer);

struct MicroBatchOptions {
  HeadLossOptions head;
  // Factor of the micro-batch's gradient: 1 / (micro-batches of the step).
  double gradient_scale = 1.0;
  PassLimits limits;
};

// Adds the gradient of gradient_scale * sum_k weight_k * value_k to .grad of
// the live adapter's tensors and returns each term's sums (value_k = clipped /
// tokens). A pack for which there is not enough memory is split, down to the
// views of one sample that score the same tokens; c10::OutOfMemoryError if even
// those do not fit. Then and at any other exception .grad holds the packs
// before.
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

// What a teacher computes for `passes` of one sample with in-process weights:
// `snapshot` null means that the snapshot is the base. The slow, obvious twin
// of the teacher service, used by `dapd replay`.
std::map<TeacherPass, TeacherScores> ScoreLocally(
    const ModelWeights& weights,
    const Adapter* snapshot,
    const std::vector<TeacherPass>& passes,
    const Views& views);

}  // namespace dapd
