// A decoder layer by its recipe (spec/layer_recipe.h):
//   x += norm(O(attention(rope(norm(Q(n))), rope(norm(K(n))), V(n))))
//   x += norm(Down(activation(Gate(m)) * Up(m)))
// with n = norm(x) and m = norm(x); norms that the recipe lacks do nothing.
#pragma once

#include <functional>

#include "common/model/reference/attention.h"
#include "common/model/rope.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns RMSNorm (Zhang & Sennrich 2019): w x / sqrt(mean(x^2) + eps) over the
// last dimension, where w is the weight or 1 + weight, by `scale`; statistics
// in float32, result in x's dtype.
at::Tensor RmsNorm(const at::Tensor& x,
                   const at::Tensor& weight,
                   double eps,
                   NormScale scale = NormScale::kWeight);

// Replaces the values that one rank computed from its share of a layer by the
// sum over all ranks that share it; every rank calls it at the same places with
// the same shapes. Empty: the layer is whole. Throws StatusError.
using SumOverRanks = std::function<void(at::Tensor& values)>;

// A layer, or a rank's share of one.
struct DecoderLayer {
  const ModelConfig& config;
  const LayerWeights& weights;
  const LoraLayer* lora = nullptr;  // null: the base
  double lora_scale = 0.0;
  int64_t index = 0;  // `attention` may need it for its cache
};

// Returns the layer's output [N, hidden] for x [N, hidden]. Applies `sum` to
// the results of attention and MLP, before a norm after them.
at::Tensor ForwardLayer(const DecoderLayer& layer,
                        const RotaryAngles& angles,
                        Attention& attention,
                        const SumOverRanks& sum,
                        const at::Tensor& x);

}  // namespace dapd
