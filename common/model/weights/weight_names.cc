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
    const LayerRecipe recipe = LayerRecipeOf(config, i);
    for (const NormRecipe& norm : recipe.norms) {
      slots.push_back({absl::StrCat(ModulePath(i, norm.module), ".weight"),
                       {norm.size},
                       &layer.norms[static_cast<size_t>(norm.place)]});
    }
    layer.weight.resize(recipe.projections.size());
    layer.bias.resize(recipe.projections.size());
    for (const Projection projection : recipe.All()) {
      const ProjectionRecipe& own = recipe[projection];
      const size_t p = IndexOf(projection);
      const std::string module = ModulePath(i, own.module);
      slots.push_back({absl::StrCat(module, ".weight"),
                       {own.out, own.in},
                       &layer.weight[p],
                       own});
      if (own.has_bias) {
        slots.push_back(
            {absl::StrCat(module, ".bias"), {own.out}, &layer.bias[p]});
      }
    }
  }
  return slots;
}

}  // namespace dapd
