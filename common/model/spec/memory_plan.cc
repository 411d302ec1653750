#include "common/model/spec/memory_plan.h"

#include <algorithm>

namespace dapd {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// A program with its libraries.
constexpr double kProgramBytes = 400e6;
// The template around a problem, and the problem itself, in tokens.
constexpr double kPromptTokens = 400;
// Tensors as wide as a layer's input, and as its MLP, that are alive at once.
constexpr double kHiddenTensors = 12;
constexpr double kIntermediateTensors = 4;
// The loss's buffers, whatever the length (common/objective/head_loss.h).
constexpr double kHeadLossBytes = 400e6;

double BytesOfNumber(const Config& config) {
  return config.model.precision == "float32" ? 4 : 2;
}

double LayerParameters(const ModelConfig& model) {
  double parameters = 0;
  for (const Projection p : AllProjections()) {
    parameters += static_cast<double>(ProjectionIn(model, p)) *
                  static_cast<double>(ProjectionOut(model, p));
  }
  return parameters;
}

// Of one of `ranks` that split every layer: its share of those, all of the
// rest.
double ShardBytes(const Config& config,
                  const ModelConfig& model,
                  int64_t ranks) {
  const double split =
      LayerParameters(model) * static_cast<double>(model.num_layers);
  const double rest = static_cast<double>(model.NumParameters()) - split;
  return BytesOfNumber(config) * (rest + split / static_cast<double>(ranks));
}

// What one layer has alive for `tokens` rows.
double LayerWorkspace(const Config& config,
                      const ModelConfig& model,
                      double tokens) {
  return tokens * BytesOfNumber(config) *
         (kHiddenTensors * static_cast<double>(model.hidden_size) +
          kIntermediateTensors * static_cast<double>(model.intermediate_size));
}

}  // namespace

double RoleMemory::Total() const {
  double total = 0;
  for (const MemoryItem& item : items) total += item.bytes;
  return total;
}

double BaseBytesOfRank(const Config& config,
                       const ModelConfig& model,
                       int64_t ranks) {
  const double shard = ShardBytes(config, model, ranks);
  if (ranks <= 1) return shard;
  return shard + 2 * BytesOfNumber(config) * LayerParameters(model);
}

MemoryPlan PlanMemory(const Config& config, const ModelConfig& model) {
  MemoryPlan plan;
  std::vector<Projection> targets;
  for (const Projection projection : AllProjections()) {
    if (std::ranges::count(config.lora.targets, ProjectionName(projection)) >
        0) {
      targets.push_back(projection);
    }
  }
  plan.lora_parameters = NumLoraParameters(model, config.lora.rank, targets);
  const double adapter = 4 * static_cast<double>(plan.lora_parameters);
  const double bytes = BytesOfNumber(config);
  const double base = BaseBytesOfRank(config, model, /*ranks=*/1);
  const auto rollout = static_cast<double>(config.rollout.max_new_tokens);
  const auto reference =
      static_cast<double>(config.objective.max_reference_tokens);
  const auto layers = static_cast<double>(model.num_layers);
  const auto hidden = static_cast<double>(model.hidden_size);
  const double kv_token = 2 * layers * bytes *
                          static_cast<double>(model.num_kv_heads) *
                          static_cast<double>(model.head_dim);
  const double slots = static_cast<double>(config.rollout.slots) *
                       (kPromptTokens + rollout) * kv_token /
                       static_cast<double>(config.rollout.tensor_parallel);
  const double kv_limit =
      static_cast<double>(config.rollout.kv_memory_mib) * kMiB;
  plan.rollout.items = {
      {"program", kProgramBytes},
      {"base", ShardBytes(config, model, config.rollout.tensor_parallel)},
      {"adapter", adapter},
      {"key-value caches", kv_limit > 0 ? std::min(slots, kv_limit) : slots}};

  const double longest_view = kPromptTokens + rollout + reference;
  plan.teacher.items = {
      {"program", kProgramBytes},
      {"base", base},
      {"snapshot", adapter},
      {"prefix caches",
       static_cast<double>(config.teacher.prefix_memory_mib) * kMiB},
      {"a layer", LayerWorkspace(config, model, longest_view)},
      {"scores", bytes * hidden * 3 * (rollout + reference)}};

  // A pass holds at least one sample's live views.
  const double sample = 3 * kPromptTokens + 2 * rollout + 3 * reference;
  const double pass =
      std::max(sample, static_cast<double>(config.trainer.pack_tokens));
  plan.trainer.items = {
      {"program", kProgramBytes},
      {"base",
       BaseBytesOfRank(config,
                       model,
                       config.trainer.shard_base ? config.trainer.ranks : 1)},
      {"adapter, two gradients, two moments", 5 * adapter},
      {"snapshot", adapter},
      {"inputs of all layers", bytes * pass * hidden * layers},
      {"kept activations",
       static_cast<double>(config.trainer.activation_memory_mib) * kMiB},
      {"a layer", 2 * LayerWorkspace(config, model, pass)},
      {"loss", kHeadLossBytes},
      {"scores of a step",
       bytes * hidden * static_cast<double>(config.trainer.batch_size) * 3 *
           (rollout + reference)}};
  if (config.trainer.train_while_sampling && !config.trainer.shard_base) {
    plan.trainer.items.push_back(
        {"trained ahead",
         static_cast<double>(config.trainer.ahead_memory_mib) * kMiB});
  }
  if (config.rollout.max_staleness > 0) {
    plan.trainer.items.push_back({"adapter of the step before", adapter});
  }
  return plan;
}

}  // namespace dapd
