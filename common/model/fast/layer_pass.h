// A decoder layer for training and scoring, forward and backward by hand: what
// autograd makes of ForwardLayer (decoder_layer.h), the reference
// implementation, with fewer passes over memory and only the activations that
// the gradients need.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"

#include "common/model/fast/flash_attention.h"
#include "common/model/fast/projection_group.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/rope.h"
#include "common/tensor/aten.h"

namespace dapd {

// What Backward needs of a forward pass over N rows of which R go on. Norms,
// rotations and the gated product are cheap and computed again.
struct LayerActivations {
  at::Tensor input;     // [N, hidden]
  at::Tensor q, k, v;   // [N, heads, head_dim] as projected
  at::Tensor attended;  // [N, H, head_dim]
  AttentionStatistics statistics;
  at::Tensor middle;    // [R, hidden]: input + O(attended)
  at::Tensor gate, up;  // [R, intermediate]
  // scale x A^T of each ProjectionGroup.
  at::Tensor low_rank_qkv, low_rank_o, low_rank_gate_up, low_rank_down;
};

// The attention of a forward pass: from rotated q [N, H, D] and k, v [N, K, D]
// to [N, H, D], as FlashAttention::Forward.
using Attend = absl::FunctionRef<at::Tensor(const at::Tensor& q,
                                            const at::Tensor& k,
                                            const at::Tensor& v,
                                            AttentionStatistics* statistics)>;

// Activation bytes per layer and token: LayerActivationBytes (pass_memory.h).
// `rank`: LoRA's, 0 without it.
int64_t ActivationBytesPerRow(const ModelConfig& config,
                              int64_t rank,
                              at::ScalarType dtype);

class LayerPass {
 public:
  // All must outlive the pass, which is made anew for every use of a layer.
  // `lora` null: only the base.
  LayerPass(const ModelConfig& config,
            const LayerWeights& weights,
            const LoraLayer* lora,
            double lora_scale,
            const RotaryAngles& angles);

  // x [N, hidden] -> [R, hidden], those of the rows `rows` ([R] int64), or of
  // all if that is undefined. What other rows do not need after attention is
  // not computed. Fills `activations`, null: keeps nothing.
  at::Tensor Forward(const at::Tensor& x,
                     const at::Tensor& rows,
                     Attend attend,
                     LayerActivations* activations) const;

  // For `attention`'s Forward. From `grad` of the output, [R, hidden], to that
  // of the input, [N, hidden],
  // or nothing if `needs_input_gradient` is false; sets `gradients` where there
  // is a pair. Frees `activations` on the way. May write over `grad`.
  at::Tensor Backward(at::Tensor grad,
                      const at::Tensor& rows,
                      const FlashAttention& attention,
                      LayerActivations activations,
                      bool needs_input_gradient,
                      LoraLayer* gradients) const;

 private:
  // `groups`: the projections that read the same input, as LayerRecipe::Groups
  // gives them: q, k, v; o; gate, up; down.
  LayerPass(const ModelConfig& config,
            const LayerWeights& weights,
            const LoraLayer* lora,
            double lora_scale,
            const RotaryAngles& angles,
            const std::vector<std::vector<Projection>>& groups);

  at::Tensor Rotated(const at::Tensor& heads, NormPlace norm) const;
  at::Tensor UnrotatedGradient(at::Tensor grad,
                               const at::Tensor& heads,
                               NormPlace norm) const;

  const ModelConfig& config_;
  const LayerWeights& weights_;
  const RotaryAngles& angles_;
  ProjectionGroup qkv_;
  ProjectionGroup o_;
  ProjectionGroup gate_up_;
  ProjectionGroup down_;
};

}  // namespace dapd
