// Runs the tails of packed sequences. Some sequences begin with chunks that
// were computed before (chunk_forward.h): only the rest of each sequence, its
// tail, goes through the layers, attending over the chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/fast/chunk_attention.h"
#include "common/model/fast/chunk_forward.h"
#include "common/model/weights/weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// The first chunks of a sequence, in order, with their layers' inputs; empty if
// the sequence is all tail. A tail has at least one token.
using SequencePrefix = std::vector<ChunkStates>;

// Shapes: N rows of the pack, M of its tails, H query heads, K key-value heads,
// D head_dim.
class SequenceTails {
 public:
  // `offsets` as in PackedTokens; a prefix for each sequence.
  SequenceTails(const ModelWeights& weights,
                const std::vector<int64_t>& offsets,
                const std::vector<SequencePrefix>& prefixes);

  // Releases the chunks' keys and values, after the last Attend.
  void DropKeys();

  // Returns the tails' rows in the pack, [M] int64 on the model's device.
  const at::Tensor& rows() const { return rows_; }

  // Returns attention's result [M, H, D] for the tails' rotated q [M, H, D] and
  // k, v [M, K, D] in `layer`.
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& k,
                    const at::Tensor& v) const;

  // Returns the input of `layer` for all rows, [N, hidden], from the chunks'
  // rows and `tails` [M, hidden]. If `layer` is the number of layers, it is the
  // output of the last layer.
  at::Tensor Whole(int64_t layer, const at::Tensor& tails) const;

 private:
  struct Tail {
    int64_t tokens = 0;
    std::vector<at::Tensor> layer_inputs;  // of the chunks before it
  };
  std::vector<Tail> tails_;
  std::optional<ChunkAttention> attention_;  // until DropKeys
  at::Tensor rows_;
};

}  // namespace dapd
