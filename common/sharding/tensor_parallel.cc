#include "common/sharding/tensor_parallel.h"

#include "common/base/status_macros.h"
#include "common/model/attention.h"
#include "common/model/decoder_layer.h"
#include "common/model/lora.h"
#include "common/model/rope.h"

namespace dapd {
namespace {

// One rank's share of a layer, between the sums.
class LayerShard {
 public:
  LayerShard(const ShardedWeights& weights,
             const ModelConfig& config,
             const Adapter* adapter,
             int64_t index)
      : layout_(weights.layout),
        config_(config),
        weights_(weights.shard.layers[static_cast<size_t>(index)]),
        lora_(adapter == nullptr
                  ? nullptr
                  : &adapter->layers[static_cast<size_t>(index)]),
        scale_(adapter == nullptr ? 0.0 : adapter->config.scale()),
        index_(index) {}

  // Before the sum over the ranks.
  at::Tensor AttentionBlock(const at::Tensor& x,
                            const RotaryAngles& angles,
                            Attention& attention) const {
    const double eps = config_.rms_norm_eps;
    const at::Tensor n = RmsNorm(x, weights_.input_norm, eps);
    at::Tensor q = Heads(Projection::kQ, n, config_.num_heads);
    at::Tensor k = Heads(Projection::kK, n, config_.num_kv_heads);
    const at::Tensor v = Heads(Projection::kV, n, config_.num_kv_heads);
    if (config_.qk_norm) {
      q = RmsNorm(q, weights_.q_norm, eps);
      k = RmsNorm(k, weights_.k_norm, eps);
    }
    return Project(
        Projection::kO,
        attention.Attend(
            index_, ApplyRotary(q, angles), ApplyRotary(k, angles), v));
  }

  at::Tensor MlpBlock(const at::Tensor& x) const {
    const at::Tensor m =
        RmsNorm(x, weights_.post_attention_norm, config_.rms_norm_eps);
    return Project(
        Projection::kDown,
        at::silu(Project(Projection::kGate, m)) * Project(Projection::kUp, m));
  }

 private:
  at::Tensor Heads(Projection projection,
                   const at::Tensor& input,
                   int64_t heads) const {
    return Project(projection, input)
        .view({input.size(0), heads, config_.head_dim});
  }

  at::Tensor Project(Projection projection, const at::Tensor& input) const {
    const auto p = static_cast<size_t>(projection);
    at::Tensor bias = weights_.bias[p];
    if (bias.defined() && SplitDimension(projection) == 0) {
      bias = ShardOf(bias, 0, layout_);
    } else if (layout_.rank != 0) {
      bias = at::Tensor();  // once in the sum
    }
    return LoraLinear(input,
                      weights_.weight[p],
                      bias,
                      lora_ == nullptr ? nullptr : &(*lora_)[p],
                      scale_);
  }

  const ShardLayout& layout_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  const LoraLayer* lora_;
  double scale_;
  int64_t index_;
};

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
    const LayerShard layer(weights, config, adapter, index);
    at::Tensor attended = layer.AttentionBlock(x, angles, attention);
    RETURN_IF_ERROR(sum(attended));
    x = x + attended;
    at::Tensor mlp = layer.MlpBlock(x);
    RETURN_IF_ERROR(sum(mlp));
    x = x + mlp;
  }
  return x;
}

// 0, 1, ... inside each sequence.
at::Tensor Positions(const PackedTokens& tokens) {
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i + 1 < tokens.offsets.size(); ++i) {
    parts.push_back(at::arange(tokens.offsets[i + 1] - tokens.offsets[i],
                               tokens.ids.options()));
  }
  return at::cat(parts);
}

at::Tensor FinalNorm(const ShardedWeights& weights, const at::Tensor& x) {
  return RmsNorm(
      x, weights.shard.final_norm, weights.shard.config.rms_norm_eps);
}

}  // namespace

TensorSum HostSum(Collective& collective) {
  return [&collective](at::Tensor& values) -> absl::Status {
    at::Tensor host = values.to(at::kFloat).cpu().contiguous();
    RETURN_IF_ERROR(collective.Sum(absl::MakeSpan(
        host.data_ptr<float>(), static_cast<size_t>(host.numel()))));
    values = host.to(values.options());
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
      ForwardTrunk(
          weights, adapter, tokens.ids, Positions(tokens), attention, sum));
  return FinalNorm(weights, x.index_select(0, rows));
}

absl::StatusOr<at::Tensor> ForwardCachedSharded(const ShardedWeights& weights,
                                                const Adapter* adapter,
                                                const at::Tensor& ids,
                                                KvCache* cache,
                                                const TensorSum& sum) {
  const int64_t tokens = ids.size(0);
  const int64_t past = cache->length();
  TORCH_CHECK(past == 0 || tokens == 1,
              "[tensor_parallel] ",
              tokens,
              " tokens behind ",
              past,
              "; a prompt comes first and whole, then token by token");
  const at::Tensor positions = at::arange(past, past + tokens, ids.options());
  KvCache* const caches[] = {cache};
  PromptAttention prompt(cache);
  DecodeAttention decode(caches);
  Attention& attention = past == 0 ? static_cast<Attention&>(prompt) : decode;
  ASSIGN_OR_RETURN(
      const at::Tensor x,
      ForwardTrunk(weights, adapter, ids, positions, attention, sum));
  cache->Advance(tokens);
  return FinalNorm(weights, x.narrow(0, tokens - 1, 1));
}

}  // namespace dapd
