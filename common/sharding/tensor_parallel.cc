#include "common/sharding/tensor_parallel.h"

#include "common/base/status_macros.h"
#include "common/model/reference/attention.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/reference/lora.h"
#include "common/model/rope.h"

namespace dapd {
namespace {

// A rank's share of a projection's result.
at::Tensor ProjectShard(const ShardedWeights& weights,
                        const Adapter* adapter,
                        int64_t index,
                        Projection projection,
                        const at::Tensor& input) {
  const auto i = static_cast<size_t>(index);
  const auto p = static_cast<size_t>(projection);
  const LayerWeights& layer = weights.shard.layers[i];
  at::Tensor bias = layer.bias[p];
  if (bias.defined() && SplitDimension(projection) == 0) {
    bias = ShardOf(bias, 0, weights.layout);
  } else if (weights.layout.rank != 0) {
    bias = at::Tensor();  // once in the sum
  }
  return LoraLinear(input,
                    layer.weight[p],
                    bias,
                    adapter == nullptr ? nullptr : &adapter->layers[i][p],
                    adapter == nullptr ? 0.0 : adapter->config.scale());
}

absl::StatusOr<at::Tensor> ForwardTrunk(const ShardedWeights& weights,
                                        const Adapter* adapter,
                                        const at::Tensor& ids,
                                        const at::Tensor& positions,
                                        Attention& attention,
                                        const TensorSum& sum) {
  at::NoGradGuard no_grad;
  const ModelConfig config = ShardConfig(weights.shard.config, weights.layout);
  const RotaryAngles angles =
      MakeRotaryAngles(config, positions, weights.shard.dtype());
  at::Tensor x = weights.shard.embedding.index_select(0, ids);
  for (int64_t index = 0; index < config.num_layers; ++index) {
    const LayerWeights& layer =
        weights.shard.layers[static_cast<size_t>(index)];
    const auto project = [&](Projection projection, const at::Tensor& input) {
      return ProjectShard(weights, adapter, index, projection, input);
    };
    at::Tensor attended =
        AttentionBlock(config, layer, project, index, angles, attention, x);
    RETURN_IF_ERROR(sum(attended));
    x = x + attended;
    at::Tensor mlp = MlpBlock(config, layer, project, x);
    RETURN_IF_ERROR(sum(mlp));
    x = x + mlp;
  }
  return x;
}

at::Tensor FinalNorm(const ShardedWeights& weights, const at::Tensor& x) {
  return RmsNorm(
      x, weights.shard.final_norm, weights.shard.config.rms_norm_eps);
}

}  // namespace

TensorSum SumOver(DeviceGroup& devices) {
  return [&devices](at::Tensor& values) -> absl::Status {
    at::Tensor sum = values.to(at::kFloat).contiguous().view({-1});
    RETURN_IF_ERROR(devices.Sum(sum));
    values = sum.view(values.sizes()).to(values.scalar_type());
    return absl::OkStatus();
  };
}

absl::StatusOr<at::Tensor> ForwardHiddenSharded(const ShardedWeights& weights,
                                                const Adapter* adapter,
                                                const PackedTokens& tokens,
                                                const at::Tensor& rows,
                                                const TensorSum& sum) {
  PackedAttention attention(tokens.offsets);
  ASSIGN_OR_RETURN(
      const at::Tensor x,
      ForwardTrunk(weights,
                   adapter,
                   tokens.ids,
                   PackedPositions(tokens.offsets, weights.shard.device()),
                   attention,
                   sum));
  return FinalNorm(weights, x.index_select(0, rows));
}

absl::StatusOr<at::Tensor> ForwardPromptSharded(const ShardedWeights& weights,
                                                const Adapter* adapter,
                                                const at::Tensor& ids,
                                                KvCache* cache,
                                                const TensorSum& sum) {
  TORCH_CHECK(cache->length() == 0, "[tensor_parallel] the cache is in use");
  const int64_t tokens = ids.size(0);
  PromptAttention attention(cache);
  ASSIGN_OR_RETURN(const at::Tensor x,
                   ForwardTrunk(weights,
                                adapter,
                                ids,
                                at::arange(tokens, ids.options()),
                                attention,
                                sum));
  cache->Advance(tokens);
  return FinalNorm(weights, x.narrow(0, tokens - 1, 1));
}

absl::StatusOr<at::Tensor> ForwardTokensSharded(
    const ShardedWeights& weights,
    const Adapter* adapter,
    const at::Tensor& ids,
    std::span<KvCache* const> caches,
    const TensorSum& sum) {
  DecodeAttention attention(caches);
  ASSIGN_OR_RETURN(const at::Tensor x,
                   ForwardTrunk(weights,
                                adapter,
                                ids,
                                NextPositions(caches).to(ids.device()),
                                attention,
                                sum));
  for (KvCache* cache : caches) {
    if (cache != nullptr) cache->Advance(1);
  }
  return FinalNorm(weights, x);
}

}  // namespace dapd
