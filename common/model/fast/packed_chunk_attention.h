// Attention of several sequences' next tokens in one launch on a CUDA device:
// what SideBySideAttention (chunk_attention.h) is on the CPU. Chunks stand
// side by side in a pass; each is a sequence of queries of its own, so that its
// bits depend neither on what else passes nor on which chunks before it do.
//
// Shapes: N rows of the pass, H query heads, K key-value heads, D head_dim.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// The next tokens of a sequence.
struct PackedChunk {
  int64_t tokens = 0;
  // The keys_values (chunk_forward.h) of the chunks before, in order; none
  // where `parent` is set.
  std::vector<at::Tensor> past;
  // The index of the chunk right before it where that is in the same pass: a
  // lower one. Below 0: it is not.
  int64_t parent = -1;
};

// Serves every layer of a pass.
class PackedChunkAttention {
 public:
  // The chunks take the first of `rows` rows, in order. Rows after them are
  // unused: what they hold has no meaning.
  PackedChunkAttention(const std::vector<PackedChunk>& chunks,
                       int64_t rows,
                       at::Device device);

  // q [N, H, D]; keys and values [K, N, D], of the same rows; rotated. Returns
  // [N, H, D].
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& keys,
                    const at::Tensor& values) const;

 private:
  // Of the keys that a pass looks at, side by side: those of a chunk before, or
  // rows of the pass.
  struct Piece {
    at::Tensor past;
    RowRange rows;
  };
  struct Layout {
    std::vector<Piece> pieces;
    std::vector<RowRange> keys;  // of each chunk, then of the unused rows
  };
  static Layout LayOut(const std::vector<PackedChunk>& chunks);
  PackedChunkAttention(const std::vector<PackedChunk>& chunks,
                       int64_t rows,
                       Layout layout,
                       at::Device device);
  // [M, K, D] of a layer; part 0: keys, 1: values.
  at::Tensor Gather(int64_t layer, int64_t part, const at::Tensor& own) const;

  std::vector<Piece> pieces_;
  // Whether the keys are the pass's own rows from the first on.
  bool is_own_ = false;
  VariableLengthAttention attention_;
};

}  // namespace dapd
