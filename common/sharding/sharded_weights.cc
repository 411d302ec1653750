#include "common/sharding/sharded_weights.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd {

int64_t SplitDimension(const ProjectionRecipe& projection) {
  return projection.split == SplitBy::kInputs ? 1 : 0;
}

absl::Status CheckShardLayout(const ModelConfig& config,
                              const ShardLayout& layout) {
  if (layout.size < 1 || layout.rank < 0 || layout.rank >= layout.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "[sharding] rank ", layout.rank, " of ", layout.size, " ranks"));
  }
  return CheckSplit(config, layout.size);
}

at::Tensor ShardOf(const at::Tensor& whole,
                   int64_t dimension,
                   const ShardLayout& layout) {
  const int64_t part = whole.size(dimension) / layout.size;
  return whole.narrow(dimension, layout.rank * part, part);
}

ModelConfig ShardConfig(const ModelConfig& config, const ShardLayout& layout) {
  ModelConfig shard = config;
  shard.num_heads /= layout.size;
  shard.num_kv_heads /= layout.size;
  shard.intermediate_size /= layout.size;
  return shard;
}

Adapter ShardAdapter(const Adapter& adapter,
                     const ModelConfig& config,
                     const ShardLayout& layout) {
  Adapter shard = adapter;
  for (size_t layer = 0; layer < shard.layers.size(); ++layer) {
    const LayerRecipe recipe =
        LayerRecipeOf(config, static_cast<int64_t>(layer));
    for (const Projection projection : recipe.All()) {
      LoraPair& pair = shard.layers[layer][IndexOf(projection)];
      if (!pair.a.defined()) continue;
      if (SplitDimension(recipe[projection]) == 0) {
        pair.b = ShardOf(pair.b, 0, layout);
      } else {
        pair.a = ShardOf(pair.a, 1, layout);
      }
    }
  }
  return shard;
}

absl::StatusOr<std::shared_ptr<const ShardedWeights>> LoadShardedWeights(
    const std::string& folder,
    at::ScalarType dtype,
    at::Device device,
    const ShardLayout& layout) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckShardLayout(config, layout));
  ASSIGN_OR_RETURN(
      const std::shared_ptr<const ModelWeights> weights,
      LoadModelWeights(folder,
                       dtype,
                       device,
                       [&layout](const ProjectionRecipe& projection,
                                 const at::Tensor& whole) {
                         return ShardOf(
                                    whole, SplitDimension(projection), layout)
                             .clone(at::MemoryFormat::Contiguous);
                       }));
  auto sharded = std::make_shared<ShardedWeights>();
  sharded->layout = layout;
  sharded->shard = *weights;
  return sharded;
}

absl::StatusOr<LayerWeights> GatherLayer(const ShardedWeights& weights,
                                         int64_t index,
                                         DeviceGroup& devices) {
  LayerWeights layer = weights.shard.layers[static_cast<size_t>(index)];
  ASSIGN_OR_RETURN(std::vector<at::Tensor> parts,
                   devices.AllGather(layer.weight));
  const LayerRecipe recipe = LayerRecipeOf(weights.shard.config, index);
  for (const Projection projection : recipe.All()) {
    const size_t i = IndexOf(projection);
    // For a weight that is split by outputs, [size, out, in] is already the
    // whole weight.
    layer.weight[i] =
        SplitDimension(recipe[projection]) == 0
            ? parts[i].flatten(0, 1)
            : parts[i].transpose(0, 1).reshape({layer.weight[i].size(0), -1});
    parts[i] = at::Tensor();
  }
  return layer;
}

}  // namespace dapd
