#include "common/model/fast/layer_pass.h"

#include <utility>

#include "common/model/fast/layer_math.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {
namespace {

// The rows `rows` of x, all if that is undefined.
at::Tensor Select(const at::Tensor& x, const at::Tensor& rows) {
  return rows.defined() ? x.index_select(0, rows) : x;
}

// The gradient of x, [count, ...], from that of Select(x, rows).
at::Tensor SelectBackward(const at::Tensor& grad,
                          const at::Tensor& rows,
                          int64_t count) {
  if (!rows.defined()) return grad;
  return at::zeros({count, grad.size(1)}, grad.options())
      .index_add_(0, rows, grad);
}

}  // namespace

int64_t ActivationBytesPerRow(const ModelConfig& config,
                              int64_t rank,
                              at::ScalarType dtype) {
  return LayerActivationBytes(
      config, rank, static_cast<int64_t>(c10::elementSize(dtype)));
}

LayerPass::LayerPass(const ModelConfig& config,
                     const LayerWeights& weights,
                     const LoraLayer* lora,
                     double lora_scale,
                     const RotaryAngles& angles)
    : LayerPass(config,
                weights,
                lora,
                lora_scale,
                angles,
                LayerRecipeOf(config, /*layer=*/0).Groups()) {}

LayerPass::LayerPass(const ModelConfig& config,
                     const LayerWeights& weights,
                     const LoraLayer* lora,
                     double lora_scale,
                     const RotaryAngles& angles,
                     const std::vector<std::vector<Projection>>& groups)
    : config_(config),
      weights_(weights),
      angles_(angles),
      qkv_(weights, lora, lora_scale, groups.at(0)),
      o_(weights, lora, lora_scale, groups.at(1)),
      gate_up_(weights, lora, lora_scale, groups.at(2)),
      down_(weights, lora, lora_scale, groups.at(3)) {}

at::Tensor LayerPass::Rotated(const at::Tensor& heads, NormPlace norm) const {
  return NormAndRotate(
      heads, weights_.norm(norm), config_.rms_norm_eps, angles_);
}

at::Tensor LayerPass::UnrotatedGradient(at::Tensor grad,
                                        const at::Tensor& heads,
                                        NormPlace norm) const {
  return NormAndRotateBackward(std::move(grad),
                               heads,
                               weights_.norm(norm),
                               config_.rms_norm_eps,
                               angles_);
}

at::Tensor LayerPass::Forward(const at::Tensor& x,
                              const at::Tensor& rows,
                              Attend attend,
                              LayerActivations* activations) const {
  LayerActivations scratch;
  LayerActivations& kept = activations == nullptr ? scratch : *activations;
  const int64_t count = x.size(0);
  {
    std::vector<at::Tensor> projected =
        qkv_.Forward(Norm(x,
                          weights_.norm(NormPlace::kBeforeAttention),
                          config_.rms_norm_eps,
                          qkv_.RoomFor(x)),
                     &kept.low_rank_qkv);
    const int64_t dim = config_.head_dim;
    kept.q = projected[0].view({count, config_.num_heads, dim});
    kept.k = projected[1].view({count, config_.num_kv_heads, dim});
    kept.v = projected[2].view({count, config_.num_kv_heads, dim});
  }
  kept.attended = attend(Rotated(kept.q, NormPlace::kQueries),
                         Rotated(kept.k, NormPlace::kKeys),
                         kept.v,
                         &kept.statistics);
  if (activations == nullptr) kept.q = kept.k = kept.v = at::Tensor();
  kept.middle = o_.Forward(Select(kept.attended.view({count, -1}), rows),
                           &kept.low_rank_o)[0];
  if (activations == nullptr) kept.attended = at::Tensor();
  {
    std::vector<at::Tensor> projected =
        gate_up_.Forward(AddAndNorm(Select(x, rows),
                                    weights_.norm(NormPlace::kBeforeMlp),
                                    config_.rms_norm_eps,
                                    gate_up_.RoomFor(kept.middle),
                                    &kept.middle),
                         &kept.low_rank_gate_up);
    kept.gate = std::move(projected[0]);
    kept.up = std::move(projected[1]);
  }
  const at::Tensor gated =
      GatedProduct(kept.gate, kept.up, down_.RoomFor(kept.gate));
  if (activations == nullptr) kept.gate = kept.up = at::Tensor();
  kept.input = x;
  return down_.Forward(gated, &kept.low_rank_down)[0].add_(kept.middle);
}

at::Tensor LayerPass::Backward(at::Tensor grad,
                               const at::Tensor& rows,
                               const FlashAttention& attention,
                               LayerActivations activations,
                               bool needs_input_gradient,
                               LoraLayer* gradients) const {
  LayerActivations& kept = activations;
  const int64_t count = kept.input.size(0);
  {
    const at::Tensor grad_gated =
        down_.Backward({grad},
                       GatedProduct(kept.gate, kept.up),
                       kept.low_rank_down,
                       /*needs_input_gradient=*/true,
                       gradients);
    GatedProductBackward(grad_gated, &kept.gate, &kept.up);
  }
  {
    const at::Tensor normed = Norm(kept.middle,
                                   weights_.norm(NormPlace::kBeforeMlp),
                                   config_.rms_norm_eps);
    const at::Tensor grad_normed = gate_up_.Backward(
        {kept.gate, kept.up}, normed, kept.low_rank_gate_up, true, gradients);
    kept.gate = kept.up = at::Tensor();
    AddNormBackward(grad_normed,
                    kept.middle,
                    weights_.norm(NormPlace::kBeforeMlp),
                    config_.rms_norm_eps,
                    &grad);
    kept.middle = at::Tensor();
  }
  AttentionGradients heads;
  {
    const at::Tensor attended = kept.attended.view({count, -1});
    const at::Tensor grad_attended =
        SelectBackward(o_.Backward({grad},
                                   Select(attended, rows),
                                   kept.low_rank_o,
                                   /*needs_input_gradient=*/true,
                                   gradients),
                       rows,
                       count);
    heads = attention.Backward(grad_attended.view(kept.attended.sizes()),
                               Rotated(kept.q, NormPlace::kQueries),
                               Rotated(kept.k, NormPlace::kKeys),
                               kept.v,
                               kept.attended,
                               kept.statistics);
    kept.attended = kept.v = at::Tensor();
  }
  heads.q = UnrotatedGradient(std::move(heads.q), kept.q, NormPlace::kQueries);
  heads.k = UnrotatedGradient(std::move(heads.k), kept.k, NormPlace::kKeys);
  kept.q = kept.k = at::Tensor();
  const at::Tensor grad_normed =
      qkv_.Backward({heads.q.reshape({count, -1}),
                     heads.k.reshape({count, -1}),
                     heads.v.reshape({count, -1})},
                    Norm(kept.input,
                         weights_.norm(NormPlace::kBeforeAttention),
                         config_.rms_norm_eps),
                    kept.low_rank_qkv,
                    needs_input_gradient,
                    gradients);
  if (!needs_input_gradient) return {};
  grad = SelectBackward(grad, rows, count);
  AddNormBackward(grad_normed,
                  kept.input,
                  weights_.norm(NormPlace::kBeforeAttention),
                  config_.rms_norm_eps,
                  &grad);
  return grad;
}

}  // namespace dapd
