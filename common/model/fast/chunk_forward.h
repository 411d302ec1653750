// The decoder over one sequence in chunks: each after the keys and values of
// the chunks before it, without gradients.
//
// A chunk's numbers follow from the weights, the tokens up to its end and the
// chunk boundaries only. So they come out the same, bit for bit, whether the
// rest of the sequence is known already or not, and sequences that begin with
// the same chunks share them.
#pragma once

#include <vector>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

struct ChunkStates {
  // [layers, 2, num_kv_heads, T, head_dim]: the rotated keys, then the values.
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

// Bytes of a chunk of `tokens` tokens in the model's dtype.
int64_t ChunkBytes(const ModelWeights& weights,
                   int64_t tokens,
                   ChunkKeeps keeps = ChunkKeeps::kHidden);

}  // namespace dapd
