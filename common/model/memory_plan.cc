#include "common/model/memory_plan.h"

namespace dapd {
namespace {

// A program with its libraries.
constexpr double kProcessBytes = 400e6;
// The template around a problem, and the problem itself, in tokens.
constexpr double kPromptTokens = 400;
constexpr double kChunkTokens = 64;
// [tokens, V] float32 tensors alive in a chunk of the head loss.
constexpr double kChunkTensors = 8;
// Tensors of a layer's width that autograd keeps or a layer has alive.
constexpr double kHiddenTensors = 12;
constexpr double kIntermediateTensors = 4;

}  // namespace

MemoryPlan PlanMemory(const Config& config, const ModelConfig& model) {
  MemoryPlan plan;
  std::vector<Projection> targets;
  for (const Projection projection : AllProjections()) {
    for (const std::string& name : config.lora.targets) {
      if (name == ProjectionName(projection)) targets.push_back(projection);
    }
  }
  plan.lora_parameters = NumLoraParameters(model, config.lora.rank, targets);
  const auto lora = static_cast<double>(plan.lora_parameters);
  const double bytes = config.model.precision == "float32" ? 4 : 2;
  const double base = bytes * static_cast<double>(model.NumParameters());
  const auto rollout = static_cast<double>(config.rollout.max_new_tokens);
  const auto reference =
      static_cast<double>(config.objective.max_reference_tokens);
  const auto layers = static_cast<double>(model.num_layers);
  const auto hidden = static_cast<double>(model.hidden_size);
  const double kv_token = 2 * layers * bytes *
                          static_cast<double>(model.num_kv_heads) *
                          static_cast<double>(model.head_dim);
  plan.rollout_bytes = kProcessBytes + base + 4 * lora +
                       static_cast<double>(config.rollout.slots) *
                           (kPromptTokens + rollout) * kv_token;

  // The six views of one sample; live and teacher read about the same length.
  const double sample_tokens = 4 * kPromptTokens + 3 * rollout + 3 * reference;
  const double layer_bytes =
      4 * sample_tokens *
      (kHiddenTensors * hidden +
       kIntermediateTensors * static_cast<double>(model.intermediate_size));
  plan.teacher_bytes = kProcessBytes + base + 4 * lora + layer_bytes;
  const double kept = config.trainer.recompute
                          ? layer_bytes + 4 * sample_tokens * hidden * layers
                          : layer_bytes * layers;
  const double head =
      kChunkTensors * kChunkTokens * 4 * static_cast<double>(model.vocab_size);
  plan.payload_bytes_a_step = bytes * hidden *
                              static_cast<double>(config.trainer.batch_size) *
                              (3 * rollout + 3 * reference);
  plan.trainer_bytes = kProcessBytes + base + 16 * lora + kept + head +
                       plan.payload_bytes_a_step;
  plan.adapter_bytes = 4 * lora;
  return plan;
}

}  // namespace dapd
