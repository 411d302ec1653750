#include "common/model/spec/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "common/config/preset_terms.h"
#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/spec/number_bytes.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/spec/scoring_memory.h"

namespace dapd {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// A program with its libraries, on a CPU.
constexpr double kProgramBytes = 400e6;
// Tensors as wide as a layer's input, and as its MLP, that are alive at once.
constexpr double kHiddenTensors = 12;
constexpr double kIntermediateTensors = 4;
// The loss's buffers on a CPU, whatever the length
// (common/objective/head_loss.h).
constexpr double kHeadLossBytes = 400e6;

double ProgramBytes(const Config& config) {
  return PlansForGpu(config) ? kGpuContextBytes : kProgramBytes;
}

// What the roles have in common.
struct Sizes {
  double number = 0;     // bytes of one of the model's numbers
  double adapter = 0;    // bytes
  double rollout = 0;    // tokens of the longest answer
  double reference = 0;  // tokens of the longest reference
  double hidden = 0;
  double score = 0;  // bytes of a scored token
};

Sizes SizesOf(const Config& config,
              const ModelConfig& model,
              int64_t lora_parameters) {
  return {
      .number = static_cast<double>(NumberBytes(config)),
      .adapter = 4 * static_cast<double>(lora_parameters),
      .rollout = static_cast<double>(config.rollout.max_new_tokens),
      .reference = static_cast<double>(config.objective.max_reference_tokens),
      .hidden = static_cast<double>(model.hidden_size),
      .score = static_cast<double>(ScoreBytes(config, model))};
}

// On a GPU, of one of a worker's ranks: every rank's part of a decoding step's
// sums; of the tokens of a pass over prompts its own part, what it adds up of
// the others', both in float32 like those, and the rounded sum
// (common/generation/cuda/cuda_decode_backend.h).
double PartsOfRanks(const Config& config, const Sizes& sizes) {
  const auto ranks = static_cast<double>(config.rollout.tensor_parallel);
  const auto rows = static_cast<double>(GpuDecodeRows(config.rollout.slots));
  const auto tokens =
      static_cast<double>(LongestPrefill(config, kPromptTokens));
  return sizes.hidden * (ranks * rows * 4 + tokens * (2 * 4 + sizes.number));
}

// Keys and values of all slots at their longest, of one of a worker's ranks.
double SlotsMemory(const Config& config, const ModelConfig& model) {
  int64_t slots = config.rollout.slots;
  int64_t tokens = kPromptTokens + config.rollout.max_new_tokens;
  if (PlansForGpu(config)) {
    slots = std::min(slots, kGpuDecodeSlots);
    tokens = TokensOfPages(tokens);
  }
  return static_cast<double>(slots * tokens) *
         static_cast<double>(KvTokenBytes(config, model)) /
         static_cast<double>(config.rollout.tensor_parallel);
}

// What decoding takes on a GPU beside that. A pass that finds no memory for its
// prompts takes fewer, and where there is none for projections to merge into,
// LibTorch's operations decode; between ranks either is the end of all.
std::vector<MemoryItem> DecodingOnGpu(const Config& config,
                                      const ModelConfig& model,
                                      const Sizes& sizes) {
  const DecodingMemory decoding =
      DecodingMemoryOf(config, model, kPromptTokens);
  const bool merges = config.model.precision == Precision::kFloat32;
  const bool is_alone = config.rollout.tensor_parallel == 1;
  const auto if_alone = [is_alone](double least) {
    return is_alone ? std::optional(least) : std::nullopt;
  };
  std::vector<MemoryItem> items = {
      {merges ? "projections with the adapter" : "adapter in the projections",
       decoding.packed,
       if_alone(merges ? 0.0 : decoding.packed)},
      {"decoder", decoding.tables + decoding.workspace},
      {"prompts or the next adapter",
       decoding.AtMost(),
       if_alone(decoding.AtLeast())},
      {"cuBLAS and graphs",
       decoding.outside,
       if_alone(decoding.least_outside)}};
  if (!is_alone) {
    items.push_back({"sums over the ranks", PartsOfRanks(config, sizes)});
  }
  return items;
}

RoleMemory RolloutMemory(const Config& config,
                         const ModelConfig& model,
                         const Sizes& sizes) {
  const double slots = SlotsMemory(config, model);
  const double kv_limit =
      static_cast<double>(config.rollout.kv_memory_mib) * kMiB;
  RoleMemory memory{
      {{"program", ProgramBytes(config)},
       {"base", ShardBytes(config, model, config.rollout.tensor_parallel)},
       {"adapter", sizes.adapter},
       {"key-value caches",
        kv_limit > 0 ? std::min(slots, kv_limit) : slots,
        /*least=*/0.0}}};
  if (PlansForGpu(config)) {
    std::ranges::move(DecodingOnGpu(config, model, sizes),
                      std::back_inserter(memory.items));
  }
  return memory;
}

RoleMemory TeacherMemory(const Config& config,
                         const ModelConfig& model,
                         const Sizes& sizes) {
  const double prefix_caches =
      static_cast<double>(config.teacher.prefix_memory_mib) * kMiB;
  RoleMemory memory{{{"program", ProgramBytes(config)},
                     {"base", BaseBytesOfRank(config, model, /*ranks=*/1)},
                     {"prefix caches", prefix_caches}}};
  std::ranges::move(ScoringItems(config, model, prefix_caches),
                    std::back_inserter(memory.items));
  const std::set<WeightSet> sets = TeacherSets(config);
  for (const WeightSet set : sets) {
    memory.items.push_back({NameOf(set), sizes.adapter});
  }
  if (PlansForGpu(config) && !sets.empty()) {
    memory.items.push_back(
        {"adapter in the projections", AdapterColumnBytes(config, model)});
  }
  return memory;
}

// What a step takes besides its passes.
std::vector<MemoryItem> StepItems(const Config& config,
                                  const ModelConfig& model,
                                  const Sizes& sizes) {
  if (PlansForGpu(config)) {
    const GpuStepMemory step = GpuStepMemoryOf(config, model);
    return {{"adapter and snapshot", step.policy},
            {"gradients, moments and copies of the adapter", step.adapters},
            {"loss", step.loss},
            {"scores of a step", step.scores}};
  }
  std::vector<MemoryItem> items = {
      {"adapter, two gradients, two moments", 5 * sizes.adapter},
      {"snapshot", sizes.adapter},
      {"loss", kHeadLossBytes},
      {"scores of a step",
       sizes.score * static_cast<double>(config.trainer.batch_size) * 3 *
           (sizes.rollout + sizes.reference)}};
  if (TeacherSets(config).contains(WeightSet::kEma)) {
    items.push_back({"moving average", sizes.adapter});
  }
  if (config.rollout.max_staleness > 0) {
    items.push_back({"adapter of the step before", sizes.adapter});
  }
  return items;
}

RoleMemory TrainerMemory(const Config& config,
                         const ModelConfig& model,
                         const Sizes& sizes) {
  const TrainerSection& trainer = config.trainer;
  const auto pass = static_cast<double>(MostPassTokens(config));
  const auto least_pass = static_cast<double>(LeastPassTokens(config));
  // Without a size in the configuration: what a CPU takes. A GPU's memory is
  // filled, and packs are shorter where it is small (pass_memory.h).
  const TrainerLimits limits =
      PlanTrainerLimits(config, model, /*gpu=*/std::nullopt).value();
  const std::optional<double> kept =
      trainer.activation_memory_mib < 0 ? std::optional(0.0) : std::nullopt;
  const double input = sizes.number * sizes.hidden *
                       static_cast<double>(model.num_layers);  // of a token
  RoleMemory memory{
      {{"program", ProgramBytes(config)},
       {"base", BaseBytesOfRank(config, model, RanksOfBase(trainer))},
       {"inputs of all layers", pass * input, least_pass * input},
       {"kept activations", static_cast<double>(limits.activation_bytes), kept},
       {"a layer",
        2 * LayerWorkspace(config, model, pass),
        2 * LayerWorkspace(config, model, least_pass)}},
      PlansForGpu(config) ? kGpuHoles : 0.0};
  std::ranges::move(StepItems(config, model, sizes),
                    std::back_inserter(memory.items));
  if (trainer.train_while_sampling && !trainer.shard_base) {
    memory.items.push_back({"trained ahead",
                            static_cast<double>(limits.ahead_bytes),
                            /*least=*/0.0});
  }
  return memory;
}

}  // namespace

std::set<WeightSet> TeacherSets(const Config& config) {
  std::set<WeightSet> sets;
  for (const TeacherPass& pass : TeacherPasses(ExpandTerms(config.objective))) {
    if (pass.weights != WeightSet::kBase) sets.insert(pass.weights);
  }
  return sets;
}

double LayerWorkspace(const Config& config,
                      const ModelConfig& model,
                      double tokens) {
  return tokens * static_cast<double>(NumberBytes(config)) *
         (kHiddenTensors * static_cast<double>(model.hidden_size) +
          kIntermediateTensors * static_cast<double>(model.intermediate_size));
}

double LayerParameters(const ModelConfig& model) {
  double parameters = 0;
  for (const Projection p : AllProjections()) {
    parameters += static_cast<double>(ProjectionIn(model, p)) *
                  static_cast<double>(ProjectionOut(model, p));
  }
  return parameters;
}

int64_t LoraParameters(const Config& config, const ModelConfig& model) {
  std::vector<Projection> targets;
  for (const Projection projection : AllProjections()) {
    if (std::ranges::count(config.lora.targets, ProjectionName(projection)) >
        0) {
      targets.push_back(projection);
    }
  }
  return NumLoraParameters(model, config.lora.rank, targets);
}

double RoleMemory::Total() const {
  double total = 0;
  for (const MemoryItem& item : items) total += item.bytes;
  return total;
}

double RoleMemory::Least() const {
  double least = 0;
  for (const MemoryItem& item : items) {
    least += item.least.value_or(item.bytes);
  }
  return least;
}

int64_t RanksOfBase(const TrainerSection& trainer) {
  return trainer.shard_base ? trainer.ranks : 1;
}

// Its share of the layers, all of the rest.
double ShardBytes(const Config& config,
                  const ModelConfig& model,
                  int64_t ranks) {
  const double split =
      LayerParameters(model) * static_cast<double>(model.num_layers);
  const double rest = static_cast<double>(model.NumParameters()) - split;
  return static_cast<double>(NumberBytes(config)) *
         (rest + split / static_cast<double>(ranks));
}

double GatheredBytes(const Config& config,
                     const ModelConfig& model,
                     int64_t ranks) {
  if (ranks <= 1) return 0;
  // The larger of the two that are split by inputs.
  const double copy =
      static_cast<double>(ProjectionIn(model, Projection::kDown)) *
      static_cast<double>(ProjectionOut(model, Projection::kDown));
  return static_cast<double>(NumberBytes(config)) *
         (2 * LayerParameters(model) + copy);
}

double BaseBytesOfRank(const Config& config,
                       const ModelConfig& model,
                       int64_t ranks) {
  return ShardBytes(config, model, ranks) + GatheredBytes(config, model, ranks);
}

MemoryPlan PlanMemory(const Config& config, const ModelConfig& model) {
  MemoryPlan plan;
  plan.lora_parameters = LoraParameters(config, model);
  const Sizes sizes = SizesOf(config, model, plan.lora_parameters);
  plan.rollout = RolloutMemory(config, model, sizes);
  plan.teacher = TeacherMemory(config, model, sizes);
  plan.trainer = TrainerMemory(config, model, sizes);
  return plan;
}

}  // namespace dapd
