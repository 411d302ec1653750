#include "common/sharding/shard_layout.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace dapd {

int64_t SplitDimension(Projection projection) {
  return projection == Projection::kO || projection == Projection::kDown ? 1
                                                                         : 0;
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

Adapter ShardAdapter(const Adapter& adapter, const ShardLayout& layout) {
  Adapter shard = adapter;
  for (auto& layer : shard.layers) {
    for (const Projection projection : AllProjections()) {
      LoraPair& pair = layer[static_cast<size_t>(projection)];
      if (!pair.a.defined()) continue;
      if (SplitDimension(projection) == 0) {
        pair.b = ShardOf(pair.b, 0, layout);
      } else {
        pair.a = ShardOf(pair.a, 1, layout);
      }
    }
  }
  return shard;
}

}  // namespace dapd
