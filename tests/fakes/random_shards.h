// Makes a rank's share of a random model.
#pragma once

#include <memory>
#include <vector>

#include "common/sharding/sharded_weights.h"

namespace dapd {

// Returns what LoadShardedWeights would read from `whole`.
inline std::shared_ptr<const ShardedWeights> ShardModel(
    const ModelWeights& whole, const ShardLayout& layout) {
  auto sharded =
      std::make_shared<ShardedWeights>(ShardedWeights{layout, whole});
  std::vector<LayerWeights>& layers = sharded->shard.layers;
  for (size_t index = 0; index < layers.size(); ++index) {
    const LayerRecipe recipe =
        LayerRecipeOf(whole.config, static_cast<int64_t>(index));
    for (const Projection projection : recipe.All()) {
      at::Tensor& weight = layers[index].weight[IndexOf(projection)];
      weight = ShardOf(weight, SplitDimension(recipe[projection]), layout)
                   .contiguous();
    }
  }
  return sharded;
}

}  // namespace dapd
