// The decoder over one sequence in chunks: each after the keys and values of
// the chunks before it, without gradients.
//
// A chunk's numbers follow from the weights, the tokens up to its end and the
// chunk boundaries only. So they come out the same, bit for bit, whether the
// rest of the sequence is known already or not, and sequences that begin with
// the same chunks share them. On CUDA the number of rows that pass together
// counts, too, since cuBLAS chooses a product's kernel by it: who wants the
// same bits keeps to one number.
//
// A model that LayerPass does not compute (spec/executor_support.h) is computed
// by LibTorch's operations, one chunk at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/fast/packed_weights.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct ChunkStates {
  // [layers, 2, num_kv_heads, T, head_dim]: the rotated keys, then the values.
  // On CUDA a token's heads lie side by side in memory, as projections write
  // and flash attention reads them; elsewhere a head's tokens do.
  at::Tensor keys_values;
  at::Tensor hidden;  // [T, hidden] after the final norm
  // [layers + 1, T, hidden]: what goes into each layer, and comes out of the
  // last. Undefined unless asked for.
  at::Tensor layer_inputs;
};

enum class ChunkKeeps {
  kHidden,       // for what reads the result
  kLayerInputs,  // for a gradient, too: a TrainingPass can begin with it
};

// `ids` [T] int64 on the model's device: the tokens after those of `past`,
// which holds the keys_values of the chunks before, in order. `adapter` null:
// the base. The reference implementation is ForwardHidden over the sequence.
ChunkStates ForwardChunk(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         const std::vector<at::Tensor>& past,
                         ChunkKeeps keeps = ChunkKeeps::kHidden);

// A chunk of a pass that computes several.
struct NextChunk {
  std::span<const int32_t> ids;  // on the host
  int64_t begin = 0;             // tokens of the sequence before it
  // The keys_values of the chunks before, in order; none where `parent` is set.
  std::vector<at::Tensor> past;
  // The index of the chunk right before it where the same pass computes that, a
  // lower one; else below 0.
  int64_t parent = -1;
  // Whether its states have memory of their own; else they are part of the
  // pass's, which lives as long as any of them.
  bool is_kept = false;
};

// Several chunks under the same weights in one pass. On CUDA every product has
// `rows` rows (at least the chunks' tokens; the others are computed and
// dropped), attention is one launch a layer, and the host waits for nothing.
// Elsewhere a pass has the chunks' rows, whatever `rows` is.
std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const Adapter* adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows,
                                       ChunkKeeps keeps = ChunkKeeps::kHidden);

// The same through packed weights, whose projections `weights` no more has to
// have (packed_layer.h): under the adapter that is applied to them, or the base
// alone. Rows that no chunk has are left out where the device can
// (pass_products.h).
std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const PackedWeights& packed,
                                       bool with_adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows);

// Tokens of a chunk: `configured`, or if that is 0 what suits the device. A GPU
// reads all weights for a chunk, so that fewer tokens than some 300 leave its
// matrix units waiting, and launches as many kernels for few tokens as for
// many.
int64_t ChunkTokensFor(int64_t configured, at::Device device);

// Bytes of a chunk of `tokens` tokens in the model's dtype.
int64_t ChunkBytes(const ModelWeights& weights,
                   int64_t tokens,
                   ChunkKeeps keeps = ChunkKeeps::kHidden);

}  // namespace dapd
