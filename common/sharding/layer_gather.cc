#include "common/sharding/layer_gather.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"

namespace dapd {

TensorAllGather HostAllGather(Collective& collective) {
  return [&collective](const at::Tensor& part) -> absl::StatusOr<at::Tensor> {
    const at::Tensor host = part.cpu().contiguous();
    const size_t bytes = host.nbytes();
    std::string own(static_cast<const char*>(host.const_data_ptr()), bytes);
    ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                     collective.Gather(std::move(own)));
    std::string all;
    for (const std::string& each : gathered) {
      if (collective.rank() == 0) all += each;
    }
    RETURN_IF_ERROR(collective.Broadcast(&all));
    const auto size = static_cast<size_t>(collective.size());
    if (all.size() != size * bytes) {
      return absl::DataLossError(
          "[sharding] the ranks' parts of a layer differ in size");
    }
    std::vector<int64_t> shape = host.sizes().vec();
    shape.insert(shape.begin(), collective.size());
    at::Tensor result = at::empty(shape, host.options());
    std::memcpy(result.mutable_data_ptr(), all.data(), all.size());
    return result.to(part.device());
  };
}

absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         const TensorAllGather& all_gather) {
  LayerWeights layer = weights.shard.layers[static_cast<size_t>(index)];
  for (const Projection projection : AllProjections()) {
    at::Tensor& weight = layer.weight[static_cast<size_t>(projection)];
    ASSIGN_OR_RETURN(const at::Tensor parts, all_gather(weight));
    // [size, out, in] is already the whole of what is split by outputs.
    weight = SplitDimension(projection) == 0
                 ? parts.flatten(0, 1)
                 : parts.transpose(0, 1).reshape({weight.size(0), -1});
  }
  return layer;
}

}  // namespace dapd
