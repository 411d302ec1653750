// Runs a decoder layer without autograd: forward for training, scoring and
// prompts, and backward for training. The mathematics is that of the reference
// implementation, ForwardLayer (decoder_layer.h), with fewer passes over memory
// and only the activations that the gradients need. LayerProjections
// (layer_projections.h) multiply by the weights, plain or packed. Norms,
// rotation, residual sums and the gated product are here, once for both.
//
// Shapes: N rows (tokens), R rows that go on behind attention, H query heads, K
// key-value heads.
#pragma once

#include <array>

#include "absl/functional/function_ref.h"

#include "common/model/fast/layer_projections.h"
#include "common/model/fast/plain_projections.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/rope.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// The residual stream between layers is the sum x + delta. The next norm
// computes the sum while it reads both, or Sum does. Both round it alike, so
// the bits do not depend on which of them adds.
struct ResidualStream {
  at::Tensor x;      // [N, hidden]; never written to
  at::Tensor delta;  // [N, hidden]; undefined: nothing to add

  // Makes x the sum, in delta's memory, and returns its norm, with `room`
  // (layer_math.h).
  at::Tensor Norm(const at::Tensor& weight, double eps, int64_t room = 0);
  // Makes x the sum, in delta's memory, and returns it.
  const at::Tensor& Sum();
};

// Tensors that Backward needs of a forward pass. Norms, rotations and the gated
// product are cheap and computed again.
struct LayerActivations {
  at::Tensor input;     // [N, hidden]
  at::Tensor q, k, v;   // [N, heads, head_dim] as projected
  at::Tensor attended;  // [N, H, head_dim]
  AttentionStatistics statistics;
  at::Tensor middle;    // [R, hidden]: input + O(attended)
  at::Tensor gate, up;  // [R, intermediate]
  // The products scale x A^T by LayerProduct (ProjectionGroup::Forward).
  std::array<at::Tensor, kNumLayerProducts> low_rank;
};

// The attention of a forward pass, from rotated q [N, H, D] and k, v [N, K, D]
// to [N, H, D], as VariableLengthAttention::Forward. The rows of v may be parts
// of wider ones.
using Attend = absl::FunctionRef<at::Tensor(const at::Tensor& q,
                                            const at::Tensor& k,
                                            const at::Tensor& v,
                                            AttentionStatistics* statistics)>;

// Returns the activation bytes per layer and token: LayerActivationBytes
// (pass_memory.h). `rank`: the LoRA's rank; 0 without a LoRA.
int64_t ActivationBytesPerRow(const ModelConfig& config,
                              int64_t rank,
                              at::ScalarType dtype);

class LayerPass {
 public:
  // All arguments must outlive the pass. Every use of a layer makes a new pass.
  // Only the norms of `weights` are read.
  LayerPass(const ModelConfig& config,
            const LayerWeights& weights,
            const RotaryAngles& angles)
      : config_(config), weights_(weights), angles_(angles) {}

  // Replaces the layer's input in `stream`, N rows, by its output: the rows
  // `rows` ([R] int64), or all N rows if `rows` is undefined. Other rows are
  // not computed behind attention. Fills `activations`; null: keeps nothing.
  void Forward(const LayerProjections& projections,
               Attend attend,
               const at::Tensor& rows,
               ResidualStream* stream,
               LayerActivations* activations) const;

  // Computes the gradient of the input, [N, hidden], from `grad`, the gradient
  // of the output, [R, hidden]; returns an undefined tensor if
  // `needs_input_gradient` is false. Sets the adapter's gradients in
  // `gradients`. `projections`, `attention` and `rows` are the same as for
  // Forward. Frees `activations` on the way. May write over `grad`.
  at::Tensor Backward(const PlainProjections& projections,
                      const VariableLengthAttention& attention,
                      const at::Tensor& rows,
                      at::Tensor grad,
                      LayerActivations activations,
                      bool needs_input_gradient,
                      LoraLayer* gradients) const;

 private:
  at::Tensor Rotated(const at::Tensor& heads, NormPlace norm) const;
  at::Tensor UnrotatedGradient(at::Tensor grad,
                               const at::Tensor& heads,
                               NormPlace norm) const;

  const ModelConfig& config_;
  const LayerWeights& weights_;
  const RotaryAngles& angles_;
};

}  // namespace dapd
