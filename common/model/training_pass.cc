#include "common/model/training_pass.h"

#include <algorithm>
#include <utility>

#include "common/model/layer_math.h"

namespace dapd {
namespace {

LayerPass MakeLayerPass(const ModelWeights& weights,
                        const Adapter& adapter,
                        const RotaryAngles& angles,
                        int64_t layer) {
  const auto i = static_cast<size_t>(layer);
  return LayerPass(weights.config,
                   weights.layers[i],
                   &adapter.layers[i],
                   adapter.config.scale(),
                   angles);
}

RotaryAngles PackedAngles(const ModelWeights& weights,
                          const PackedTokens& tokens) {
  return MakeRotaryAngles(weights.config,
                          PackedPositions(tokens.offsets, weights.device()),
                          weights.dtype());
}

// Layers whose activations fit into `bytes`.
int64_t KeptLayers(const ModelWeights& weights,
                   const Adapter& adapter,
                   int64_t rows,
                   int64_t bytes) {
  const int64_t layer_bytes =
      rows * ActivationBytesPerRow(
                 weights.config, adapter.config.rank, weights.dtype());
  return std::min(weights.config.num_layers, bytes / layer_bytes);
}

}  // namespace

TrainingPass::TrainingPass(const ModelWeights& weights,
                           const Adapter& adapter,
                           const PackedTokens& tokens,
                           const at::Tensor& rows,
                           int64_t activation_bytes)
    : weights_(weights),
      adapter_(adapter),
      rows_(rows),
      angles_(PackedAngles(weights, tokens)),
      attention_(tokens.offsets, weights.device()),
      num_kept_(KeptLayers(
          weights, adapter, tokens.offsets.back(), activation_bytes)),
      activations_(weights.layers.size()) {
  at::NoGradGuard no_grad;
  const int64_t layers = weights.config.num_layers;
  at::Tensor x = weights.embedding.index_select(0, tokens.ids);
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerActivations& kept = activations_[static_cast<size_t>(layer)];
    kept.input = x;
    // The last ones, which the backward pass frees before it runs any again.
    const bool keep = layer >= layers - num_kept_;
    x = Layer(layer).Forward(
        x, RowsBehind(layer), attention_, keep ? &kept : nullptr);
  }
  last_ = x;
  hidden_ = Norm(last_, weights.final_norm, weights.config.rms_norm_eps);
}

LayerPass TrainingPass::Layer(int64_t layer) const {
  return MakeLayerPass(weights_, adapter_, angles_, layer);
}

at::Tensor TrainingPass::RowsBehind(int64_t layer) const {
  return layer + 1 == weights_.config.num_layers ? rows_ : at::Tensor();
}

std::vector<LoraLayer> TrainingPass::Backward(const at::Tensor& grad_hidden) {
  at::NoGradGuard no_grad;
  std::vector<LoraLayer> gradients(activations_.size());
  at::Tensor grad = at::zeros_like(last_);
  AddNormBackward(grad_hidden,
                  last_,
                  weights_.final_norm,
                  weights_.config.rms_norm_eps,
                  &grad);
  last_ = at::Tensor();
  for (int64_t layer = weights_.config.num_layers - 1; layer >= 0; --layer) {
    LayerActivations& kept = activations_[static_cast<size_t>(layer)];
    const LayerPass pass = Layer(layer);
    if (!kept.gate.defined()) {
      const at::Tensor input = kept.input;
      pass.Forward(input, RowsBehind(layer), attention_, &kept);
    }
    grad = pass.Backward(std::move(grad),
                         RowsBehind(layer),
                         attention_,
                         std::move(kept),
                         /*needs_input_gradient=*/layer > 0,
                         &gradients[static_cast<size_t>(layer)]);
  }
  return gradients;
}

at::Tensor ForwardWithoutGradient(const ModelWeights& weights,
                                  const Adapter& adapter,
                                  const PackedTokens& tokens,
                                  const at::Tensor& rows) {
  at::NoGradGuard no_grad;
  const RotaryAngles angles = PackedAngles(weights, tokens);
  const FlashAttention attention(tokens.offsets, weights.device());
  at::Tensor x = weights.embedding.index_select(0, tokens.ids);
  for (int64_t layer = 0; layer < weights.config.num_layers; ++layer) {
    const bool is_last = layer + 1 == weights.config.num_layers;
    x = MakeLayerPass(weights, adapter, angles, layer)
            .Forward(x, is_last ? rows : at::Tensor(), attention, nullptr);
  }
  return Norm(x, weights.final_norm, weights.config.rms_norm_eps);
}

}  // namespace dapd
