// Rotary position embedding (Su et al. 2021) in the half-split form of the
// Hugging Face models: dimension i turns with dimension i + D / 2.
#pragma once

#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

// cos and sin of position * theta^(-2i / D) for the D dimensions of a head that
// turn (AttentionRecipe::rotated_dim), repeated for both halves: [N, 1, D],
// computed in float32 and then rounded to `dtype`. If the model has rope
// scaling (spec/rope_config.h), the frequencies are stretched and cos and sin
// are multiplied by its attention factor. All code that turns heads, on any
// device, takes the angles from here.
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

// `positions` [N] int64 on the model's device.
RotaryAngles MakeRotaryAngles(const ModelConfig& config,
                              const at::Tensor& positions,
                              at::ScalarType dtype);

// Returns `heads` [N, num_heads, head_dim] with the first D dimensions of each
// head turned by the angles of its row.
at::Tensor ApplyRotary(const at::Tensor& heads, const RotaryAngles& angles);

}  // namespace dapd
