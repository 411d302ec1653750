#include "common/sharding/layer_gather.h"

#include <vector>

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices) {
  LayerWeights layer = weights.shard.layers[static_cast<size_t>(index)];
  ASSIGN_OR_RETURN(std::vector<at::Tensor> parts,
                   devices.AllGather(layer.weight));
  const LayerRecipe recipe = LayerRecipeOf(weights.shard.config, index);
  for (const Projection projection : recipe.All()) {
    const size_t i = IndexOf(projection);
    // [size, out, in] is already the whole of what is split by outputs.
    layer.weight[i] =
        SplitDimension(recipe[projection]) == 0
            ? parts[i].flatten(0, 1)
            : parts[i].transpose(0, 1).reshape({layer.weight[i].size(0), -1});
    parts[i] = at::Tensor();
  }
  return layer;
}

}  // namespace dapd
