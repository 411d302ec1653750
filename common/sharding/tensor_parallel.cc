#include "common/sharding/tensor_parallel.h"

#include "common/base/status_error.h"

namespace dapd {

ModelWeights WeightsOfRank(const ShardedWeights& weights) {
  ModelWeights share = weights.shard;
  share.config = ShardConfig(weights.shard.config, weights.layout);
  for (size_t layer = 0; layer < share.layers.size(); ++layer) {
    const LayerRecipe recipe =
        LayerRecipeOf(share.config, static_cast<int64_t>(layer));
    for (const Projection projection : recipe.All()) {
      at::Tensor& bias = share.layers[layer].bias[IndexOf(projection)];
      if (!bias.defined()) continue;
      if (SplitDimension(recipe[projection]) == 0) {
        bias = ShardOf(bias, 0, weights.layout);
      } else if (weights.layout.rank != 0) {
        bias = at::Tensor();  // rank 0 adds it to the sum
      }
    }
  }
  return share;
}

SumOverRanks SumOver(DeviceGroup& devices) {
  return [&devices](at::Tensor& values) {
    at::Tensor sum = values.to(at::kFloat).contiguous().view({-1});
    ThrowIfError(devices.Sum(sum));
    values = sum.view(values.sizes()).to(values.scalar_type());
  };
}

}  // namespace dapd
