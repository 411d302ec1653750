#include "common/sharding/shard_layout.h"

#include <string>

#include "absl/strings/str_cat.h"

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

}  // namespace dapd
