// Decides which student views of a micro-batch go through the model side by
// side.
//
// Views of references and of rollouts never share a pack. References are known
// before any answer is, so their forward passes can be run ahead.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/config/config.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/training_pass.h"
#include "common/model/weights/weights.h"
#include "common/terms/term.h"
#include "common/terms/view.h"

namespace dapd {

// Limits of one pass through the model.
struct PassLimits {
  // Tokens of a pack; a single sample with more tokens is a pack of its own.
  int64_t pack_tokens = 16384;
  // Bytes of the activations that a pack keeps; the other layers run again
  // (TrainingPass).
  int64_t activation_bytes = kUnlimitedActivations;
  // Tokens of the chunks in which none_rollout passes forward, from its first
  // token on; 0: the whole view at once. They change results, within rounding.
  int64_t chunk_tokens = 0;
  bool splits_packs = true;  // TrainerLimits::splits_packs
};
// Returns the limits of the rule for the device of the weights
// (common/model/spec/pass_memory.h).
PassLimits MakePassLimits(const TrainerLimits& limits,
                          const ModelWeights& weights);
// Returns the limits for the memory that is free on the device now. Throws
// StatusError.
PassLimits MakePassLimits(const Config& config, const ModelWeights& weights);

// Student views of one sample that score the same tokens; they are never split.
struct PackPart {
  size_t sample = 0;
  std::vector<ViewName> students;
};
using Pack = std::vector<PackPart>;

// Returns the packs over `samples`, one element per sample, in a fixed order,
// with as many parts side by side as limits.pack_tokens allows. Only the views
// that score `completion` need to be known. A sample without scored tokens (an
// answer of padding alone, or an answer for which every term is masked) is in
// no pack.
std::vector<Pack> PlanPacks(const std::vector<Term>& terms,
                            std::span<const Views* const> samples,
                            Completion completion,
                            const PassLimits& limits);

// Returns the views of a pack, part by part.
std::vector<const View*> ViewsOf(std::span<const PackPart> pack,
                                 std::span<const Views* const> samples);
// Returns the names of these views, in the same order.
std::vector<ViewName> NamesOf(std::span<const PackPart> pack);

}  // namespace dapd
