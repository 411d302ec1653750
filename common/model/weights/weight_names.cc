#include "common/model/weights/weight_names.h"

#include "absl/strings/str_cat.h"

namespace dapd {

std::vector<WeightSlot> WeightSlots(ModelWeights& weights) {
  const ModelConfig& config = weights.config;
  const int64_t hidden = config.hidden_size;
  std::vector<WeightSlot> slots = {
      {kEmbeddingName, {config.vocab_size, hidden}, &weights.embedding},
      {"model.norm.weight", {hidden}, &weights.final_norm},
  };
  if (!config.tied_embeddings) {
    slots.push_back({kHeadName, {config.vocab_size, hidden}, &weights.head});
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    slots.push_back({absl::StrCat(prefix, "input_layernorm.weight"),
                     {hidden},
                     &layer.input_norm});
    slots.push_back({absl::StrCat(prefix, "post_attention_layernorm.weight"),
                     {hidden},
                     &layer.post_attention_norm});
    if (config.qk_norm) {
      slots.push_back({absl::StrCat(prefix, "self_attn.q_norm.weight"),
                       {config.head_dim},
                       &layer.q_norm});
      slots.push_back({absl::StrCat(prefix, "self_attn.k_norm.weight"),
                       {config.head_dim},
                       &layer.k_norm});
    }
    for (const Projection projection : AllProjections()) {
      const auto p = static_cast<size_t>(projection);
      const std::string module = ProjectionModule(i, projection);
      const int64_t out = ProjectionOut(config, projection);
      slots.push_back({absl::StrCat(module, ".weight"),
                       {out, ProjectionIn(config, projection)},
                       &layer.weight[p],
                       projection});
      if (ProjectionHasBias(config, projection)) {
        slots.push_back({absl::StrCat(module, ".bias"), {out}, &layer.bias[p]});
      }
    }
  }
  return slots;
}

}  // namespace dapd
