// Which student views of a micro-batch go through the model side by side.
//
// Views of references and of rollouts never share a pack: the former are known
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

// What one pass through the model may take.
struct PassLimits {
  // Tokens of a pack; a sample that alone has more is a pack of its own.
  int64_t pack_tokens = 16384;
  // Kept activations of a pack; the layers beyond run again (TrainingPass).
  int64_t activation_bytes = kUnlimitedActivations;
  // Tokens of the chunks in which none_rollout passes forward, from its first
  // token on; 0: as one. Part of the result, within rounding.
  int64_t chunk_tokens = 0;
  bool splits_packs = true;  // as TrainerLimits
};
// Those of the rule for the weights' device (common/model/spec/pass_memory.h).
PassLimits MakePassLimits(const TrainerLimits& limits,
                          const ModelWeights& weights);
// The same, for what is free of the device now; throws StatusError.
PassLimits MakePassLimits(const Config& config, const ModelWeights& weights);

// Student views of one sample that score the same tokens: what is never split.
struct PackPart {
  size_t sample = 0;
  std::vector<ViewName> students;
};
using Pack = std::vector<PackPart>;

// The packs over `samples`, one element a sample, in a fixed order: as many
// parts side by side as limits.pack_tokens allow. Only the views that score
// `completion` need to be known. A sample with none of its tokens (an answer of
// padding alone, or one for which every term is masked) is in no pack.
std::vector<Pack> PlanPacks(const std::vector<Term>& terms,
                            std::span<const Views* const> samples,
                            Completion completion,
                            const PassLimits& limits);

// The views of a pack, part by part.
std::vector<const View*> ViewsOf(std::span<const PackPart> pack,
                                 std::span<const Views* const> samples);
// Their names, in the same order.
std::vector<ViewName> NamesOf(std::span<const PackPart> pack);

}  // namespace dapd
