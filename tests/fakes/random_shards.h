// A rank's share of a random model, and an adapter that changes something.
#pragma once

#include <memory>

#include "common/model/weights/adapter.h"
#include "common/sharding/sharded_weights.h"

namespace dapd {

// What LoadShardedWeights would have read of `whole`.
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

inline Adapter TrainedAdapter(const ModelConfig& model) {
  Adapter adapter =
      MakeFreshAdapter(model, {.rank = 4, .alpha = 8}, 3, at::kCPU);
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (auto& layer : adapter.layers) {
    for (LoraPair& pair : layer) {
      pair.b = at::randn(pair.b.sizes(), generator) * 0.05;
    }
  }
  return adapter;
}

}  // namespace dapd
