// The memory that a run needs, by arithmetic from its configuration: an upper
// estimate for choosing machines, not a measurement. docs/scale.md derives it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// An estimate of the tokens of a problem and the template around it.
inline constexpr int64_t kPromptTokens = 400;

// Returns the sets of weights, besides the base, that the terms need of a
// teacher.
std::set<WeightSet> TeacherSets(const Config& config);

// Returns the number of weights in the projections of all layers.
double ProjectedParameters(const ModelConfig& model);
// Returns the number of parameters of the adapter that `config` asks for.
int64_t LoraParameters(const Config& config, const ModelConfig& model);

// Returns the bytes that one layer has in use while it computes `tokens` rows,
// in LayerPass or, if LayerPass does not compute the model, by LibTorch.
double LayerWorkspace(const Config& config,
                      const ModelConfig& model,
                      double tokens);

struct MemoryItem {
  std::string what;
  double bytes = 0.0;
  // With only this much on a GPU the process still does its work, more slowly.
  // Nothing: it needs all of `bytes`.
  std::optional<double> least;
};

// Peak memory of one process, by item.
struct RoleMemory {
  std::vector<MemoryItem> items;
  // The bytes of its GPU, or of its even part of a shared GPU, that the process
  // leaves free as it divides the rest (pass_memory.h). 0: it divides nothing.
  double holes = 0.0;
  double Total() const;
  // Returns the least bytes: with less on its GPU a process ends for lack of
  // memory.
  double Least() const;
};

struct MemoryPlan {
  int64_t lora_parameters = 0;
  RoleMemory rollout;
  RoleMemory teacher;
  RoleMemory trainer;
  std::map<std::string, RoleMemory> teachers;  // further ones, by name
};

// Plans for a GPU if PlansForGpu (pass_memory.h). Then the trainer's Least is
// the limit of PlanTrainerLimits, and the rollout worker's includes the working
// memory of its decoder (decoding_memory.h).
// `teachers`: the further teachers, whose heads each trainer rank holds.
MemoryPlan PlanMemory(const Config& config,
                      const ModelConfig& model,
                      const FurtherTeachers& teachers = {});

// Returns the memory of a worker of a further teacher. `config` is the run's.
RoleMemory PlanTeacherMemory(const Config& config,
                             const FurtherTeacher& teacher);

// Returns the bytes of one rank of a worker on GPUs for sums over the ranks
// (common/generation/cuda/cuda_ranks.h): every rank's part of a decoding step's
// sums and, for a pass over prompts, the rank's own part and the other ranks'
// parts, all in float32, and two rounded sums. 0 with one rank.
double PartsOfRanks(const Config& config, const ModelConfig& model);

// Returns how many of the trainer's ranks split every layer of the base between
// them (common/sharding/sharded_weights.h); 1: each rank has the whole base.
int64_t RanksOfBase(const TrainerSection& trainer);

// ShardBytes is the part of the frozen base that one of `ranks` such processes
// holds. GatheredBytes is what it gathers during a pass: two whole layers, the
// present and the next, and a second copy of one projection that is split by
// inputs (common/sharding/sharded_weights.h). BaseBytesOfRank is the sum of
// both. With 1 rank it is the whole base.
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
