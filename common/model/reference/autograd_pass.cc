#include "common/model/reference/autograd_pass.h"

#include <utility>

#include "common/model/rope.h"

namespace dapd {
namespace {

// Returns a tensor with these numbers that requires a gradient.
at::Tensor Leaf(const at::Tensor& tensor) {
  return tensor.detach().requires_grad_(true);
}

LoraLayer LeavesOf(const LoraLayer& layer) {
  LoraLayer leaves(layer.size());
  for (size_t p = 0; p < layer.size(); ++p) {
    if (!layer[p].a.defined()) continue;
    leaves[p] = {.a = Leaf(layer[p].a), .b = Leaf(layer[p].b)};
  }
  return leaves;
}

LoraLayer GradientsOf(const LoraLayer& leaves) {
  LoraLayer gradients(leaves.size());
  for (size_t p = 0; p < leaves.size(); ++p) {
    if (!leaves[p].a.defined()) continue;
    gradients[p] = {.a = leaves[p].a.grad(), .b = leaves[p].b.grad()};
  }
  return gradients;
}

}  // namespace

AutogradPass::AutogradPass(const ModelWeights& weights,
                           const Adapter& adapter,
                           const PackedTokens& tokens,
                           const at::Tensor& rows)
    : weights_(weights),
      adapter_(adapter),
      rows_(rows),
      angles_(
          MakeRotaryAngles(weights.config,
                           PackedPositions(tokens.offsets, weights.device()),
                           weights.dtype())),
      attention_(tokens.offsets, weights.device()),
      walk_(WalkLayers(weights, WalkKind::kForwardAndBackward)) {
  const at::NoGradGuard no_grad;
  at::Tensor x = Embed(weights, tokens.ids);
  for (int64_t layer = 0; layer < weights.config.num_layers; ++layer) {
    inputs_.push_back(x);
    const LayerWeights own = walk_->Next(layer);
    x = RunLayer(layer, own, adapter.layers[static_cast<size_t>(layer)], x);
  }
  last_ = std::move(x);
  hidden_ = FinalNorm(weights, last_.index_select(0, rows_));
}

at::Tensor AutogradPass::RunLayer(int64_t layer,
                                  const LayerWeights& weights,
                                  const LoraLayer& lora,
                                  const at::Tensor& x) {
  return ForwardLayer({.config = weights_.config,
                       .weights = weights,
                       .lora = &lora,
                       .lora_scale = adapter_.config.scale(),
                       .index = layer},
                      angles_,
                      attention_,
                      /*sum=*/nullptr,
                      x);
}

std::vector<LoraLayer> AutogradPass::Backward(const at::Tensor& grad_hidden) {
  const at::AutoGradMode with_gradient(true);
  at::Tensor grad;
  {
    const at::Tensor last = Leaf(std::exchange(last_, at::Tensor()));
    FinalNorm(weights_, last.index_select(0, rows_)).backward(grad_hidden);
    grad = last.grad();
  }
  std::vector<LoraLayer> gradients(inputs_.size());
  for (int64_t layer = weights_.config.num_layers - 1; layer >= 0; --layer) {
    const auto index = static_cast<size_t>(layer);
    const at::Tensor input = Leaf(std::exchange(inputs_[index], at::Tensor()));
    const LoraLayer leaves = LeavesOf(adapter_.layers[index]);
    const LayerWeights own = walk_->Next(layer);
    RunLayer(layer, own, leaves, input).backward(grad);
    grad = input.grad();
    gradients[index] = GradientsOf(leaves);
  }
  return gradients;
}

}  // namespace dapd
