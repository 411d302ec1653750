// The decoder: one implementation for rollout, teacher and trainer, for
// qwen3, qwen2 and llama, on CPU and CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/adapter.h"
#include "common/model/weights.h"
#include "torch/torch.h"

namespace dapd {

// Sequences of any length side by side in one row, without padding. Positions
// count from 0 inside each sequence; attention is causal inside each.
struct PackedTokens {
  at::Tensor ids;                 // [N] int64, on the model's device
  std::vector<int64_t> offsets;   // num_sequences + 1, from 0 to N
};
PackedTokens PackTokens(const std::vector<std::vector<int32_t>>& sequences,
                        at::Device device);

// Final-norm hidden states [rows, hidden] of the given row indices of a packed
// forward ([rows] int64). `adapter` null: the base. Differentiable with respect
// to the adapter's tensors if grad mode is on and they require grad; then
// `recompute` trades a second forward per layer for not keeping activations.
at::Tensor ForwardHidden(const ModelWeights& weights,
                         const Adapter* adapter,
                         const PackedTokens& tokens,
                         const at::Tensor& rows,
                         bool recompute = false);

// Logits [rows, vocab] float32 of final-norm hidden states.
at::Tensor ApplyHead(const ModelWeights& weights, const at::Tensor& hidden);

}  // namespace dapd
