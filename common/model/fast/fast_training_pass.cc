#include "common/model/fast/fast_training_pass.h"

#include <algorithm>
#include <utility>

#include "common/model/fast/layer_math.h"

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

}  // namespace

FastTrainingPass::FastTrainingPass(const ModelWeights& weights,
                                   const Adapter& adapter,
                                   const PackedTokens& tokens,
                                   const at::Tensor& rows,
                                   int64_t activation_bytes,
                                   const std::vector<SequencePrefix>& prefixes)
    : weights_(weights),
      adapter_(adapter),
      rows_(rows),
      angles_(PackedAngles(weights, tokens)),
      attention_(tokens.offsets, weights.device()),
      walk_(WalkLayers(weights, WalkKind::kForwardAndBackward)),
      activations_(static_cast<size_t>(weights.config.num_layers)) {
  at::NoGradGuard no_grad;
  if (std::ranges::all_of(prefixes, &SequencePrefix::empty)) {
    num_kept_ = NumKeptLayers(weights.config,
                              adapter.config.rank,
                              weights.dtype(),
                              tokens.offsets.back(),
                              activation_bytes);
    last_ = ForwardWhole(tokens);
  } else {
    tails_.emplace(weights, tokens.offsets, prefixes);
    last_ = ForwardTails(tokens);
    tails_->DropKeys();
  }
  hidden_ = Norm(last_, weights.final_norm, weights.config.rms_norm_eps);
}

at::Tensor FastTrainingPass::ForwardWhole(const PackedTokens& tokens) {
  const int64_t layers = weights_.config.num_layers;
  at::Tensor x = weights_.embedding.index_select(0, tokens.ids);
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerActivations& kept = activations_[static_cast<size_t>(layer)];
    kept.input = x;
    // The last ones, which the backward pass frees before it runs any again.
    const bool keep = layer >= layers - num_kept_;
    const LayerWeights whole = walk_->Next(layer);
    x = MakeLayerPass(weights_.config, whole, adapter_, angles_, layer)
            .Forward(x, RowsBehind(layer), attention_, keep ? &kept : nullptr);
  }
  return x;
}

// All rows of the tails pass the last layer, too: few of them were not asked
// for.
at::Tensor FastTrainingPass::ForwardTails(const PackedTokens& tokens) {
  const int64_t layers = weights_.config.num_layers;
  const at::Tensor& tail_rows = tails_->rows();
  const RotaryAngles angles =
      MakeRotaryAngles(weights_.config,
                       PackedPositions(tokens.offsets, weights_.device())
                           .index_select(0, tail_rows),
                       weights_.dtype());
  at::Tensor x =
      weights_.embedding.index_select(0, tokens.ids.index_select(0, tail_rows));
  for (int64_t layer = 0; layer < layers; ++layer) {
    activations_[static_cast<size_t>(layer)].input = x;
    const LayerWeights whole = walk_->Next(layer);
    const auto attend = [&](const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v,
                            AttentionStatistics*) {
      return tails_->Attend(layer, q, k, v);
    };
    x = MakeLayerPass(weights_.config, whole, adapter_, angles, layer)
            .Forward(x, /*rows=*/{}, attend, /*activations=*/nullptr);
  }
  return tails_->Whole(layers, x).index_select(0, rows_);
}

at::Tensor FastTrainingPass::RowsBehind(int64_t layer) const {
  return layer + 1 == weights_.config.num_layers ? rows_ : at::Tensor();
}

std::vector<LoraLayer> FastTrainingPass::Backward(
    const at::Tensor& grad_hidden) {
  at::NoGradGuard no_grad;
  std::vector<LoraLayer> gradients;
  for (const LoraLayer& layer : adapter_.layers) {
    gradients.emplace_back(layer.size());
  }
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
      const at::Tensor input =
          tails_.has_value() ? tails_->Whole(layer, kept.input) : kept.input;
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

at::Tensor FastForwardWithoutGradient(const ModelWeights& weights,
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
