// Rotary position embedding (Su et al. 2021) in the half-split form of the
// Hugging Face models: dimension i turns with dimension i + D / 2.
#pragma once

#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

// cos and sin of position * theta^(-2i / D) for the D dimensions of a head that
// turn (AttentionRecipe::rotated_dim), the frequencies stretched and both
// multiplied by an attention factor where the model says so
// (spec/rope_config.h), repeated for both halves: [N, 1, D], computed in
// float32 and then given in `dtype`. Whoever turns heads by them, on whatever
// device, takes them from here.
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

// `positions` [N] int64 on the model's device.
RotaryAngles MakeRotaryAngles(const ModelConfig& config,
                              const at::Tensor& positions,
                              at::ScalarType dtype);

// `heads` [N, num_heads, head_dim], of each the first dimensions turned by its
// row's angles, as many as these have.
at::Tensor ApplyRotary(const at::Tensor& heads, const RotaryAngles& angles);

}  // namespace dapd
