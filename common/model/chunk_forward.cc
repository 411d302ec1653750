#include "common/model/chunk_forward.h"

#include <limits>
#include <utility>

#include "common/model/attention.h"
#include "common/model/decoder_layer.h"
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

// Attends over past and chunk; keeps the chunk's keys and values.
class ChunkAttention : public Attention {
 public:
  ChunkAttention(const std::vector<at::Tensor>& past,
                 at::Tensor mask,
                 at::Tensor keys_values)
      : past_(past),
        mask_(std::move(mask)),
        keys_values_(std::move(keys_values)) {}

  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) override {
    const int64_t tokens = q.size(0);
    const int64_t heads = q.size(1);
    const int64_t kv_heads = k.size(1);
    const int64_t head_dim = q.size(2);
    const at::Tensor own = keys_values_[layer];
    own[0].copy_(k.transpose(0, 1));
    own[1].copy_(v.transpose(0, 1));
    // The query heads of a group are more rows over the same keys: no key is
    // repeated. [1, K, H / K * T, D]
    const at::Tensor rows = q.transpose(0, 1).reshape(
        {1, kv_heads, heads / kv_heads * tokens, head_dim});
    const at::Tensor out =
        at::scaled_dot_product_attention(rows,
                                         Behind(layer, 0).unsqueeze(0),
                                         Behind(layer, 1).unsqueeze(0),
                                         mask_);
    return out.view({heads, tokens, head_dim})
        .transpose(0, 1)
        .reshape({tokens, heads * head_dim});
  }

 private:
  // [K, past + T, D]: keys (part 0) or values (part 1).
  at::Tensor Behind(int64_t layer, int64_t part) const {
    std::vector<at::Tensor> all;
    all.reserve(past_.size() + 1);
    for (const at::Tensor& chunk : past_) all.push_back(chunk[layer][part]);
    all.push_back(keys_values_[layer][part]);
    return at::cat(all, 1);
  }

  const std::vector<at::Tensor>& past_;
  const at::Tensor mask_;
  const at::Tensor keys_values_;
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
  ChunkAttention attention(
      past,
      MakeMask(
          begin, tokens, config.num_heads / config.num_kv_heads, x.options()),
      states.keys_values);
  const RotaryAngles angles =
      MakeRotaryAngles(config,
                       at::arange(begin, begin + tokens, ids.options()),
                       weights.dtype());
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    x = ForwardLayer(config,
                     weights.layers[index],
                     adapter == nullptr ? nullptr : &adapter->layers[index],
                     adapter == nullptr ? 0.0 : adapter->config.scale(),
                     layer,
                     angles,
                     attention,
                     x);
  }
  states.hidden = RmsNorm(x, weights.final_norm, config.rms_norm_eps);
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
