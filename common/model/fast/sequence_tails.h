// Packed sequences of which some begin with chunks that were computed before
// (chunk_forward.h): what is left of each, its tail, goes through the layers
// alone, attending over the chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/fast/chunk_attention.h"
#include "common/model/fast/chunk_forward.h"
#include "common/model/fast/packed_chunk_attention.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// The first chunks of a sequence, in order, with their layers' inputs; none: it
// is all tail. A tail has at least one token.
using SequencePrefix = std::vector<ChunkStates>;

// Shapes: N rows of the pack, M of its tails, H query heads, K key-value heads,
// D head_dim.
class SequenceTails {
 public:
  // `offsets` as in PackedTokens; a prefix for each sequence.
  SequenceTails(const ModelWeights& weights,
                const std::vector<int64_t>& offsets,
                const std::vector<SequencePrefix>& prefixes);

  // Behind the last Attend: lets go of the chunks' keys and values.
  void DropKeys();

  // The tails' rows in the pack, [M] int64 on the model's device.
  const at::Tensor& rows() const { return rows_; }

  // From rotated q [M, H, D] and k, v [M, K, D] of the tails in `layer` to
  // [M, H, D].
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) const;

  // What goes into `layer`, or comes out of the last for the number of layers,
  // of all rows, [N, hidden]: the chunks' and `tails` [M, hidden].
  at::Tensor Whole(int64_t layer, const at::Tensor& tails) const;

 private:
  struct Tail {
    int64_t tokens = 0;
    std::vector<at::Tensor> layer_inputs;     // of the chunks before it
    std::optional<ChunkAttention> attention;  // none on CUDA
  };
  std::vector<Tail> tails_;
  std::optional<PackedChunkAttention> at_once_;  // of all tails, on CUDA
  at::Tensor rows_;
};

}  // namespace dapd
