// One pre-norm decoder layer:
//   x += O(attention(rope(norm(Q(n))), rope(norm(K(n))), V(n))),  n = norm(x)
//   x += Down(silu(Gate(m)) * Up(m)),                             m = norm(x)
// The families differ by the traits of ModelConfig: norms on q and k, biases.
#pragma once

#include <array>
#include <functional>

#include "common/model/reference/attention.h"
#include "common/model/rope.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

using LoraLayer = std::array<LoraPair, kNumProjections>;

// RMSNorm (Zhang & Sennrich 2019): weight * x / sqrt(mean(x^2) + eps) over the
// last dimension, statistics in float32, result in x's dtype.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Replaces what one rank computed from its share of a layer by the sum over all
// ranks that share it; every rank calls it at the same places with the same
// shapes. Empty: the layer is whole. Throws StatusError.
using SumOverRanks = std::function<void(at::Tensor& values)>;

// A layer, or a rank's share of one.
struct DecoderLayer {
  const ModelConfig& config;
  const LayerWeights& weights;
  const LoraLayer* lora = nullptr;  // null: the base
  double lora_scale = 0.0;
  int64_t index = 0;  // which `attention` may need for its cache
};

// x [N, hidden] -> [N, hidden]. `sum` is applied to what attention and MLP add
// to x.
at::Tensor ForwardLayer(const DecoderLayer& layer,
                        const RotaryAngles& angles,
                        Attention& attention,
                        const SumOverRanks& sum,
                        const at::Tensor& x);

}  // namespace dapd
