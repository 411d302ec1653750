// Makes a rank's share of a random model.
#pragma once

#include <memory>

#include "common/sharding/sharded_weights.h"

namespace dapd {

// Returns what LoadShardedWeights would read from `whole`.
inline std::shared_ptr<const ShardedWeights> ShardModel(
    const ModelWeights& whole, const ShardLayout& layout) {
  auto sharded =
      std::make_shared<ShardedWeights>(ShardedWeights{layout, whole});
  for (LayerWeights& layer : sharded->shard.layers) {
    for (const Projection projection : AllProjections()) {
      at::Tensor& weight = layer.weight[static_cast<size_t>(projection)];
      weight = ShardOf(weight, SplitDimension(projection), layout).contiguous();
    }
  }
  return sharded;
}

}  // namespace dapd
