#include "common/model/fast/chunk_forward.h"

#include "common/model/fast/chunk_attention.h"
#include "common/model/fast/layer_math.h"
#include "common/model/fast/layer_pass.h"
#include "common/model/rope.h"

namespace dapd {

ChunkStates ForwardChunk(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         const std::vector<at::Tensor>& past,
                         ChunkKeeps keeps) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = weights.config;
  const int64_t tokens = ids.size(0);
  at::Tensor x = weights.embedding.index_select(0, ids);
  ChunkStates states;
  states.keys_values = at::empty(
      {config.num_layers, 2, config.num_kv_heads, tokens, config.head_dim},
      x.options());
  if (keeps == ChunkKeeps::kLayerInputs) {
    states.layer_inputs = at::empty(
        {config.num_layers + 1, tokens, config.hidden_size}, x.options());
  }
  const auto keep_input = [&](int64_t layer) {
    if (states.layer_inputs.defined()) states.layer_inputs[layer].copy_(x);
  };
  const ChunkAttention attention(config, past, tokens, x.options());
  const RotaryAngles angles = MakeRotaryAngles(
      config,
      at::arange(attention.begin(), attention.begin() + tokens, ids.options()),
      weights.dtype());
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    keep_input(layer);
    const at::Tensor own = states.keys_values[layer];
    const auto attend = [&](const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v,
                            AttentionStatistics*) {
      own[0].copy_(k.transpose(0, 1));
      own[1].copy_(v.transpose(0, 1));
      return attention.Attend(layer, q, own[0], own[1]);
    };
    x = LayerPass(config,
                  weights.layers[index],
                  adapter == nullptr ? nullptr : &adapter->layers[index],
                  adapter == nullptr ? 0.0 : adapter->config.scale(),
                  angles)
            .Forward(x, /*rows=*/{}, attend, /*activations=*/nullptr);
  }
  keep_input(config.num_layers);
  states.hidden = Norm(x, weights.final_norm, config.rms_norm_eps);
  return states;
}

int64_t ChunkBytes(const ModelWeights& weights,
                   int64_t tokens,
                   ChunkKeeps keeps) {
  const ModelConfig& config = weights.config;
  int64_t numbers =
      2 * config.num_layers * config.num_kv_heads * config.head_dim +
      config.hidden_size;
  if (keeps == ChunkKeeps::kLayerInputs) {
    numbers += (config.num_layers + 1) * config.hidden_size;
  }
  return tokens * numbers *
         static_cast<int64_t>(at::elementSize(weights.dtype()));
}

}  // namespace dapd
