#include "common/model/chunk_forward.h"

#include <limits>

#include "common/model/flash_attention.h"
#include "common/model/layer_math.h"
#include "common/model/layer_pass.h"
#include "common/model/rope.h"

namespace dapd {
namespace {

// Row t sees the past and rows 0..t of its chunk: [group * T, past + T], added
// to the scores. The rows stand once for each query head of a group.
at::Tensor MakeMask(int64_t past,
                    int64_t tokens,
                    int64_t group,
                    const at::TensorOptions& options) {
  const at::Tensor own =
      at::full(
          {tokens, tokens}, -std::numeric_limits<double>::infinity(), options)
          .triu(1);
  return at::cat({at::zeros({tokens, past}, options), own}, 1)
      .repeat({group, 1});
}

// Attends over past and chunk in one layer.
class ChunkAttention {
 public:
  // `past` as in ForwardChunk; `mask` of MakeMask; the chunk's own keys and
  // values go to `keys_values`.
  ChunkAttention(const std::vector<at::Tensor>& past,
                 const at::Tensor& mask,
                 const at::Tensor& keys_values,
                 int64_t layer)
      : past_(past), mask_(mask), own_(keys_values[layer]), layer_(layer) {}

  // As Attend (layer_pass.h); without statistics.
  at::Tensor operator()(const at::Tensor& q,
                        const at::Tensor& k,
                        const at::Tensor& v,
                        AttentionStatistics*) const {
    own_[0].copy_(k.transpose(0, 1));
    own_[1].copy_(v.transpose(0, 1));
    const at::Tensor keys = Behind(0);
    const at::Tensor values = Behind(1);
    return HasCausalAttention(q) ? AttendFromEnd(q, keys, values)
                                 : MaskedProduct(q, keys, values);
  }

 private:
  // [K, past + T, D]: keys (part 0) or values (part 1).
  at::Tensor Behind(int64_t part) const {
    std::vector<at::Tensor> all;
    all.reserve(past_.size() + 1);
    for (const at::Tensor& chunk : past_) all.push_back(chunk[layer_][part]);
    all.push_back(own_[part]);
    return at::cat(all, 1);
  }

  // The query heads of a group are more rows over the same keys, [1, K,
  // H / K * T, D]: no key is repeated.
  at::Tensor MaskedProduct(const at::Tensor& q,
                           const at::Tensor& keys,
                           const at::Tensor& values) const {
    const int64_t tokens = q.size(0);
    const int64_t heads = q.size(1);
    const int64_t kv_heads = keys.size(0);
    const at::Tensor rows = q.transpose(0, 1).reshape(
        {1, kv_heads, heads / kv_heads * tokens, q.size(2)});
    return at::scaled_dot_product_attention(
               rows, keys.unsqueeze(0), values.unsqueeze(0), mask_)
        .view({heads, tokens, q.size(2)})
        .transpose(0, 1)
        .contiguous();
  }

  const std::vector<at::Tensor>& past_;
  const at::Tensor& mask_;
  const at::Tensor own_;
  const int64_t layer_;
};

}  // namespace

ChunkStates ForwardChunk(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         const std::vector<at::Tensor>& past) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = weights.config;
  int64_t begin = 0;
  for (const at::Tensor& chunk : past) begin += chunk.size(3);
  const int64_t tokens = ids.size(0);
  at::Tensor x = weights.embedding.index_select(0, ids);
  ChunkStates states;
  states.keys_values = at::empty(
      {config.num_layers, 2, config.num_kv_heads, tokens, config.head_dim},
      x.options());
  at::Tensor mask;
  if (!HasCausalAttention(x)) {
    mask = MakeMask(
        begin, tokens, config.num_heads / config.num_kv_heads, x.options());
  }
  const RotaryAngles angles =
      MakeRotaryAngles(config,
                       at::arange(begin, begin + tokens, ids.options()),
                       weights.dtype());
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    x = LayerPass(config,
                  weights.layers[index],
                  adapter == nullptr ? nullptr : &adapter->layers[index],
                  adapter == nullptr ? 0.0 : adapter->config.scale(),
                  angles)
            .Forward(x,
                     /*rows=*/{},
                     ChunkAttention(past, mask, states.keys_values, layer),
                     /*activations=*/nullptr);
  }
  states.hidden = Norm(x, weights.final_norm, config.rms_norm_eps);
  return states;
}

int64_t ChunkBytes(const ModelWeights& weights, int64_t tokens) {
  const ModelConfig& config = weights.config;
  const int64_t numbers =
      2 * config.num_layers * config.num_kv_heads * config.head_dim +
      config.hidden_size;
  return tokens * numbers *
         static_cast<int64_t>(at::elementSize(weights.dtype()));
}

}  // namespace dapd
