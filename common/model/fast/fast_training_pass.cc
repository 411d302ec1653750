#include "common/model/fast/fast_training_pass.h"

#include <algorithm>
#include <utility>

#include "common/model/fast/layer_math.h"

namespace dapd {
namespace {

PlainProjections ProjectionsOf(const ModelConfig& config,
                               const LayerWeights& weights,
                               const Adapter& adapter,
                               int64_t layer) {
  return PlainProjections(LayerRecipeOf(config, layer),
                          weights,
                          &adapter.layers[static_cast<size_t>(layer)],
                          adapter.config.scale());
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
  } else {
    tails_.emplace(weights, tokens.offsets, prefixes);
  }
  ResidualStream stream =
      tails_.has_value() ? ForwardTails(tokens) : ForwardWhole(tokens);
  hidden_ = stream.Norm(weights.final_norm, weights.config.rms_norm_eps);
  last_ = stream.x;
}

ResidualStream FastTrainingPass::ForwardWhole(const PackedTokens& tokens) {
  const int64_t layers = weights_.config.num_layers;
  ResidualStream stream{weights_.embedding.index_select(0, tokens.ids)};
  for (int64_t layer = 0; layer < layers; ++layer) {
    LayerActivations& kept = activations_[static_cast<size_t>(layer)];
    kept.input = stream.Sum();
    // The last layers are kept, since the backward pass frees them before it
    // runs any layer again.
    const bool keep = layer >= layers - num_kept_;
    const LayerWeights whole = walk_->Next(layer);
    LayerPass(weights_.config, whole, angles_)
        .Forward(ProjectionsOf(weights_.config, whole, adapter_, layer),
                 attention_,
                 RowsBehind(layer),
                 &stream,
                 keep ? &kept : nullptr);
  }
  return stream;
}

// All rows of the tails pass the last layer, too, since few of them are not in
// `rows`.
ResidualStream FastTrainingPass::ForwardTails(const PackedTokens& tokens) {
  const int64_t layers = weights_.config.num_layers;
  const at::Tensor& tail_rows = tails_->rows();
  const RotaryAngles angles =
      MakeRotaryAngles(weights_.config,
                       PackedPositions(tokens.offsets, weights_.device())
                           .index_select(0, tail_rows),
                       weights_.dtype());
  ResidualStream stream{weights_.embedding.index_select(
      0, tokens.ids.index_select(0, tail_rows))};
  for (int64_t layer = 0; layer < layers; ++layer) {
    activations_[static_cast<size_t>(layer)].input = stream.Sum();
    const LayerWeights whole = walk_->Next(layer);
    const auto attend = [&](const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v,
                            AttentionStatistics*) {
      return tails_->Attend(layer, q, k, v);
    };
    LayerPass(weights_.config, whole, angles)
        .Forward(ProjectionsOf(weights_.config, whole, adapter_, layer),
                 attend,
                 /*rows=*/{},
                 &stream,
                 /*activations=*/nullptr);
  }
  tails_->DropKeys();
  return {tails_->Whole(layers, stream.Sum()).index_select(0, rows_)};
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
    const LayerPass pass(weights_.config, whole, angles_);
    const PlainProjections projections =
        ProjectionsOf(weights_.config, whole, adapter_, layer);
    if (!kept.gate.defined()) {
      ResidualStream stream{
          tails_.has_value() ? tails_->Whole(layer, kept.input) : kept.input};
      pass.Forward(projections, attention_, RowsBehind(layer), &stream, &kept);
    }
    grad = pass.Backward(projections,
                         attention_,
                         RowsBehind(layer),
                         std::move(grad),
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
  const VariableLengthAttention attention(tokens.offsets, weights.device());
  const auto walk = WalkLayers(weights, WalkKind::kForward);
  ResidualStream stream{weights.embedding.index_select(0, tokens.ids)};
  for (int64_t layer = 0; layer < weights.config.num_layers; ++layer) {
    const bool is_last = layer + 1 == weights.config.num_layers;
    const LayerWeights whole = walk->Next(layer);
    LayerPass(weights.config, whole, angles)
        .Forward(ProjectionsOf(weights.config, whole, adapter, layer),
                 attention,
                 is_last ? rows : at::Tensor(),
                 &stream,
                 /*activations=*/nullptr);
  }
  return stream.Norm(weights.final_norm, weights.config.rms_norm_eps);
}

}  // namespace dapd
