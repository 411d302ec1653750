// What a run needs, by arithmetic from its configuration: an upper estimate to
// choose machines by, not a measurement. docs/scale.md has the derivation.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// The template around a problem, and the problem itself, in tokens.
inline constexpr int64_t kPromptTokens = 400;

// The sets of weights besides the base that the terms read of a teacher.
std::set<WeightSet> TeacherSets(const Config& config);

// Weights of the projections of all layers.
double ProjectedParameters(const ModelConfig& model);
// Of the adapter that `config` asks for.
int64_t LoraParameters(const Config& config, const ModelConfig& model);

// What one layer has alive while it computes `tokens` rows, in bytes: in
// LayerPass or, where that does not compute the model, by LibTorch.
double LayerWorkspace(const Config& config,
                      const ModelConfig& model,
                      double tokens);

struct MemoryItem {
  std::string what;
  double bytes = 0.0;
  // With no more than that on a GPU the process does its work all the same,
  // more slowly. Nothing: it needs all of `bytes`.
  std::optional<double> least;
};

// Peak of one process, by what takes it.
struct RoleMemory {
  std::vector<MemoryItem> items;
  // Of its GPU, or of the even part of one that others share: what the process
  // leaves alone as it divides the rest (pass_memory.h). 0: it divides nothing.
  double holes = 0.0;
  double Total() const;
  // With less than that on its GPU a process ends for lack of memory.
  double Least() const;
};

struct MemoryPlan {
  int64_t lora_parameters = 0;
  RoleMemory rollout;
  RoleMemory teacher;
  RoleMemory trainer;
};

// For a GPU where PlansForGpu (pass_memory.h): the trainer's least is then what
// PlanTrainerLimits asks for, and the rollout worker's has what its decoder
// works in (decoding_memory.h).
MemoryPlan PlanMemory(const Config& config, const ModelConfig& model);

// Of the trainer's ranks, those that split every layer of the base between them
// (common/sharding/sharded_weights.h); 1: each has it whole.
int64_t RanksOfBase(const TrainerSection& trainer);

// The part of the frozen base that one of `ranks` such processes holds; what it
// gathers while it makes a pass: two layers whole, the one that is computed and
// the next, and one projection that is split by inputs once more
// (common/sharding/sharded_weights.h); and both. 1: the whole base.
double ShardBytes(const Config& config,
                  const ModelConfig& model,
                  int64_t ranks);
double GatheredBytes(const Config& config,
                     const ModelConfig& model,
                     int64_t ranks);
double BaseBytesOfRank(const Config& config,
                       const ModelConfig& model,
                       int64_t ranks);

}  // namespace dapd
