// Runs the decoder over a sequence in chunks, without gradients: each chunk
// attends to the keys and values of the chunks before it.
//
// The numbers of a chunk depend only on the weights, the tokens up to its end
// and the chunk boundaries. So they are the same, bit for bit, whether the rest
// of the sequence is known already or not, and sequences that begin with the
// same chunks share them. On CUDA they also depend on the number of rows that
// pass together, since cuBLAS chooses the kernel of a product by it: for the
// same bits always use the same number.
//
// LibTorch's operations compute a model that LayerPass does not compute
// (spec/executor_support.h), one chunk at a time.
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
  // On CUDA the heads of a token lie side by side in memory, as projections
  // write them and flash attention reads them; on the CPU the tokens of a head
  // do.
  at::Tensor keys_values;
  at::Tensor hidden;  // [T, hidden] after the final norm
  // [layers + 1, T, hidden]: the input of each layer, then the output of the
  // last layer. Undefined unless asked for.
  at::Tensor layer_inputs;
};

enum class ChunkKeeps {
  kHidden,       // no layer inputs
  kLayerInputs,  // layer inputs, with which a TrainingPass can begin
};

// Runs one chunk: `ids` [T] int64 on the model's device, the tokens after
// `past`, which holds the keys_values of the chunks before, in order. `adapter`
// null: the base. The reference implementation is ForwardHidden over the
// sequence.
ChunkStates ForwardChunk(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         const std::vector<at::Tensor>& past,
                         ChunkKeeps keeps = ChunkKeeps::kHidden);

// One of the chunks of a pass.
struct NextChunk {
  std::span<const int32_t> ids;  // on the host
  int64_t begin = 0;             // tokens of the sequence before it
  // The keys_values of the chunks before, in order; empty if `parent` is set.
  std::vector<at::Tensor> past;
  // The index of the chunk right before this one, if the same pass computes
  // that chunk; it is lower than this chunk's. Otherwise below 0.
  int64_t parent = -1;
  // Whether the states get their own memory. Otherwise they are views of the
  // states of the whole pass, which live as long as any view.
  bool is_kept = false;
};

// Runs several chunks under the same weights in one pass. On CUDA every product
// has `rows` rows (at least the chunks' tokens; the other rows are computed and
// dropped), attention is one launch per layer, and the host does not wait. On
// the CPU a pass has only the chunks' rows, whatever `rows` is.
std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const Adapter* adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows,
                                       ChunkKeeps keeps = ChunkKeeps::kHidden);

// Runs chunks through packed weights (packed_projections.h), under the adapter
// that is applied to them or the base alone; of `weights` the projections are
// not read. If the device can, rows without a token are not computed
// (pass_products.h).
std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const PackedWeights& packed,
                                       bool with_adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows);

// Returns the tokens of a chunk: `configured`, or if that is 0 a number for the
// device. A GPU reads all weights for a chunk, so with fewer than about 300
// tokens its matrix units wait, and it launches as many kernels for few tokens
// as for many.
int64_t ChunkTokensFor(int64_t configured, at::Device device);

// Returns the bytes of the states of a chunk of `tokens` tokens in the model's
// dtype.
int64_t ChunkBytes(const ModelWeights& weights,
                   int64_t tokens,
                   ChunkKeeps keeps = ChunkKeeps::kHidden);

}  // namespace dapd
