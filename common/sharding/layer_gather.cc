#include "common/sharding/layer_gather.h"

#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices) {
  LayerWeights layer = weights.shard.layers[static_cast<size_t>(index)];
  for (const Projection projection : AllProjections()) {
    at::Tensor& weight = layer.weight[static_cast<size_t>(projection)];
    ASSIGN_OR_RETURN(const at::Tensor parts, devices.AllGather(weight));
    // [size, out, in] is already the whole of what is split by outputs.
    weight = SplitDimension(projection) == 0
                 ? parts.flatten(0, 1)
                 : parts.transpose(0, 1).reshape({weight.size(0), -1});
  }
  return layer;
}

}  // namespace dapd
