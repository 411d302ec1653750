#include "common/model/fast/layer_pass.h"

#include <utility>

#include "common/model/fast/layer_math.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {
namespace {

// Returns the rows `rows` of x; all rows if `rows` is undefined.
at::Tensor Select(const at::Tensor& x, const at::Tensor& rows) {
  return rows.defined() ? x.index_select(0, rows) : x;
}

// Returns the gradient of x, [count, ...], from the gradient of Select(x,
// rows).
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

at::Tensor ResidualStream::Norm(const at::Tensor& weight,
                                double eps,
                                int64_t room) {
  if (!delta.defined()) return dapd::Norm(x, weight, eps, room);
  at::Tensor sum = std::exchange(delta, at::Tensor());
  const at::Tensor normed = AddAndNorm(x, weight, eps, room, &sum);
  x = std::move(sum);
  return normed;
}

const at::Tensor& ResidualStream::Sum() {
  if (delta.defined()) x = std::exchange(delta, at::Tensor()).add_(x);
  return x;
}

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

void LayerPass::Forward(const LayerProjections& projections,
                        Attend attend,
                        const at::Tensor& rows,
                        ResidualStream* stream,
                        LayerActivations* activations) const {
  using enum LayerProduct;
  LayerActivations scratch;
  LayerActivations& kept = activations == nullptr ? scratch : *activations;
  const auto multiply = [&](LayerProduct product, const at::Tensor& x) {
    return projections.Multiply(
        product, x, &kept.low_rank[static_cast<size_t>(product)]);
  };
  const int64_t count = stream->x.size(0);
  {
    const std::vector<at::Tensor> projected =
        multiply(kQkv,
                 stream->Norm(weights_.norm(NormPlace::kBeforeAttention),
                              config_.rms_norm_eps,
                              projections.RoomFor(kQkv, stream->x)));
    const auto heads = [&](const at::Tensor& rows_of_heads, int64_t number) {
      return rows_of_heads.unflatten(1, {number, config_.head_dim});
    };
    kept.q = heads(projected[0], config_.num_heads);
    kept.k = heads(projected[1], config_.num_kv_heads);
    kept.v = heads(projected[2], config_.num_kv_heads);
  }
  if (activations != nullptr) kept.input = stream->x;
  kept.attended = attend(Rotated(kept.q, NormPlace::kQueries),
                         Rotated(kept.k, NormPlace::kKeys),
                         kept.v,
                         &kept.statistics);
  if (activations == nullptr) {
    kept.q = kept.k = kept.v = at::Tensor();
    kept.statistics = {};
  }
  stream->delta =
      multiply(kO, Select(kept.attended.reshape({count, -1}), rows))[0];
  if (activations == nullptr) kept.attended = at::Tensor();
  stream->x = Select(stream->x, rows);
  {
    const std::vector<at::Tensor> projected =
        multiply(kGateUp,
                 stream->Norm(weights_.norm(NormPlace::kBeforeMlp),
                              config_.rms_norm_eps,
                              projections.RoomFor(kGateUp, stream->x)));
    kept.gate = projected[0];
    kept.up = projected[1];
  }
  if (activations != nullptr) kept.middle = stream->x;
  at::Tensor gated =
      GatedProduct(kept.gate, kept.up, projections.RoomFor(kDown, kept.gate));
  if (activations == nullptr) kept.gate = kept.up = at::Tensor();
  stream->delta = multiply(kDown, gated)[0];
}

at::Tensor LayerPass::Backward(const PlainProjections& projections,
                               const VariableLengthAttention& attention,
                               const at::Tensor& rows,
                               at::Tensor grad,
                               LayerActivations activations,
                               bool needs_input_gradient,
                               LoraLayer* gradients) const {
  using enum LayerProduct;
  LayerActivations& kept = activations;
  const auto backward = [&](LayerProduct product,
                            const std::vector<at::Tensor>& grads,
                            const at::Tensor& x,
                            bool needs_gradient_of_x = true) {
    return projections.Backward(product,
                                grads,
                                x,
                                kept.low_rank[static_cast<size_t>(product)],
                                needs_gradient_of_x,
                                gradients);
  };
  const int64_t count = kept.input.size(0);
  {
    const at::Tensor grad_gated =
        backward(kDown, {grad}, GatedProduct(kept.gate, kept.up));
    GatedProductBackward(grad_gated, &kept.gate, &kept.up);
  }
  {
    const at::Tensor normed = Norm(kept.middle,
                                   weights_.norm(NormPlace::kBeforeMlp),
                                   config_.rms_norm_eps);
    const at::Tensor grad_normed =
        backward(kGateUp, {kept.gate, kept.up}, normed);
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
    const at::Tensor grad_attended = SelectBackward(
        backward(kO, {grad}, Select(attended, rows)), rows, count);
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
      backward(kQkv,
               {heads.q.reshape({count, -1}),
                heads.k.reshape({count, -1}),
                heads.v.reshape({count, -1})},
               Norm(kept.input,
                    weights_.norm(NormPlace::kBeforeAttention),
                    config_.rms_norm_eps),
               needs_input_gradient);
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
