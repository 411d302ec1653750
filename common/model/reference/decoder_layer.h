// One pre-norm decoder layer:
//   x += O(attention(rope(norm(Q(n))), rope(norm(K(n))), V(n))),  n = norm(x)
//   x += Down(silu(Gate(m)) * Up(m)),                             m = norm(x)
// The families differ by the traits of ModelConfig: norms on q and k, biases.
#pragma once

#include <array>

#include "absl/functional/function_ref.h"

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

// What a projection of the layer gives for its input [N, in]: [N, out], by
// whoever holds its weights.
using Project = absl::FunctionRef<at::Tensor(Projection projection,
                                             const at::Tensor& input)>;

// The two updates of x [N, hidden], without the residual. `config` has the
// heads that `project` gives, all of the layer's or a rank's share; of
// `weights` only the norms are read. `index` as in ForwardLayer.
at::Tensor AttentionBlock(const ModelConfig& config,
                          const LayerWeights& weights,
                          Project project,
                          int64_t index,
                          const RotaryAngles& angles,
                          Attention& attention,
                          const at::Tensor& x);
at::Tensor MlpBlock(const ModelConfig& config,
                    const LayerWeights& weights,
                    Project project,
                    const at::Tensor& x);

// x [N, hidden] -> [N, hidden]. `lora` null: the base. `index` is the layer's
// number, which `attention` may need for its cache.
at::Tensor ForwardLayer(const ModelConfig& config,
                        const LayerWeights& weights,
                        const LoraLayer* lora,
                        double lora_scale,
                        int64_t index,
                        const RotaryAngles& angles,
                        Attention& attention,
                        const at::Tensor& x);

}  // namespace dapd
