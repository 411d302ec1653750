// The decoder of every recipe (spec/layer_recipe.h) in LibTorch's operations,
// on any device: the reference implementation for tests of the three faster
// paths, and the path of a model that they do not compute
// (spec/executor_support.h).
//
//   this decoder       the probes that identify a worker's weights,
//                      `dapd score`, the teachers of `dapd replay`, and
//                      everything that a faster path does not compute: an
//                      unknown recipe, on CPUs a model that several ranks
//                      share, on a GPU a shape that its kernels do not take
//   model/fast         the trainer's passes (fast_training_pass.h) and the
//                      teachers' passes (chunk_forward.h)
//   generation/cpu     decoding on a CPU (cpu_decoder.h)
//   generation/cuda    prompts (cuda_prefill.h) and decoding (cuda_decoder.h)
//                      on an NVIDIA GPU
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/reference/decoder_layer.h"
#include "common/model/reference/kv_cache.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// Sequences of any length side by side in one row, without padding. Positions
// count from 0 inside each sequence; attention is causal inside each.
struct PackedTokens {
  at::Tensor ids;                // [N] int64, on the model's device
  std::vector<int64_t> offsets;  // num_sequences + 1, from 0 to N
};
PackedTokens PackTokens(const std::vector<std::vector<int32_t>>& sequences,
                        at::Device device);

// Returns the position of each row inside its sequence, [N] int64.
at::Tensor PackedPositions(const std::vector<int64_t>& offsets,
                           at::Device device);

// Returns the final-norm hidden states [rows, hidden] at the row indices `rows`
// ([rows] int64, on the model's device) of one pass over `tokens`. `adapter`
// null: the base. Differentiable with respect to the adapter's tensors if grad
// mode is on and they require grad. `weights` and `adapter` must outlive the
// graph.
//
// Here and below, `weights` and `adapter` may be one rank's share of a model's
// (common/sharding/tensor_parallel.h) with `sum` over the ranks, which all make
// these calls; every rank then gets the whole model's result, without
// gradients.
at::Tensor ForwardHidden(const ModelWeights& weights,
                         const Adapter* adapter,
                         const PackedTokens& tokens,
                         const at::Tensor& rows,
                         const SumOverRanks& sum = nullptr);

// Runs a whole prompt ([T] int64) into an empty cache. Returns the final-norm
// hidden state [1, hidden] of its last token. No gradient.
at::Tensor ForwardPrompt(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         KvCache* cache,
                         const SumOverRanks& sum = nullptr);

// Runs one more token for each cache: ids [M] int64, caches[i] the sequence of
// row i or null for an unused row. Returns [M, hidden]; unused rows have no
// meaning. No gradient.
at::Tensor ForwardTokens(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         std::span<KvCache* const> caches,
                         const SumOverRanks& sum = nullptr);

// Returns the embedding of tokens [N] int64 as input of the first layer: [N,
// hidden].
at::Tensor Embed(const ModelWeights& weights, const at::Tensor& ids);

// Returns the final norm of the last layer's output.
at::Tensor FinalNorm(const ModelWeights& weights, const at::Tensor& x);

// Runs all layers, without the final norm, over any kind of attention. ids and
// positions are [N] int64. Returns [N, hidden]. `inputs` (null: none) gets the
// input of each layer and then the output of the last layer.
at::Tensor ForwardTrunk(const ModelWeights& weights,
                        const Adapter* adapter,
                        const at::Tensor& ids,
                        const at::Tensor& positions,
                        Attention& attention,
                        const SumOverRanks& sum,
                        std::vector<at::Tensor>* inputs = nullptr);

// Caps final logits in place: c tanh(logit / c) for c = `softcap`
// (ModelRecipe::logit_softcap); no effect for 0.
void CapLogits(double softcap, at::Tensor& logits);

// Returns the capped logits [rows, vocab] float32 of final-norm hidden states.
at::Tensor ApplyHead(const ModelWeights& weights, const at::Tensor& hidden);

}  // namespace dapd
