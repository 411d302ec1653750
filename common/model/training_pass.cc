#include "common/model/training_pass.h"

#include <algorithm>
#include <utility>

#include "common/model/layer_math.h"

namespace dapd {
namespace {

LayerPass MakeLayerPass(const ModelConfig& config,
                        const LayerWeights& weights,
                        const Adapter& adapter,
                        const RotaryAngles& angles,
                        int64_t layer) {
  return LayerPass(config,
                   weights,
                   &adapter.layers[static_cast<size_t>(layer)],
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
      walk_(WalkLayers(weights, WalkKind::kForwardAndBackward)),
      num_kept_(KeptLayers(
          weights, adapter, tokens.offsets.back(), activation_bytes)),
      activations_(static_cast<size_t>(weights.config.num_layers)) {
  at::NoGradGuard no_grad;
  const int64_t layers = weights.config.num_layers;
  at::Tensor x = weights.embedding.index_select(0, tokens.ids);
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerActivations& kept = activations_[static_cast<size_t>(layer)];
    kept.input = x;
    // The last ones, which the backward pass frees before it runs any again.
    const bool keep = layer >= layers - num_kept_;
    const LayerWeights whole = walk_->Next(layer);
    x = MakeLayerPass(weights.config, whole, adapter, angles_, layer)
            .Forward(x, RowsBehind(layer), attention_, keep ? &kept : nullptr);
  }
  last_ = x;
  hidden_ = Norm(last_, weights.final_norm, weights.config.rms_norm_eps);
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
    const LayerWeights whole = walk_->Next(layer);
    const LayerPass pass =
        MakeLayerPass(weights_.config, whole, adapter_, angles_, layer);
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
  const auto walk = WalkLayers(weights, WalkKind::kForward);
  at::Tensor x = weights.embedding.index_select(0, tokens.ids);
  for (int64_t layer = 0; layer < weights.config.num_layers; ++layer) {
    const bool is_last = layer + 1 == weights.config.num_layers;
    const LayerWeights whole = walk->Next(layer);
    x = MakeLayerPass(weights.config, whole, adapter, angles, layer)
            .Forward(x, is_last ? rows : at::Tensor(), attention, nullptr);
  }
  return Norm(x, weights.final_norm, weights.config.rms_norm_eps);
}

}  // namespace dapd
