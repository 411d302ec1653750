// Computes attention of several sequences' next tokens over the keys and values
// of the chunks before them (chunk_forward.h) and their own, in one call.
// Chunks stand side by side in a pass. Each is a sequence of queries of its
// own, so its bits depend neither on the other chunks of the pass nor on
// whether the chunks before it are computed in the same pass.
//
// Shapes: N rows of the pass, M gathered keys, H query heads, K key-value
// heads, D head_dim.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/variable_length_attention.h"
#include "common/tensor/aten.h"

namespace dapd {

// The next tokens of a sequence.
struct AttendedChunk {
  int64_t tokens = 0;
  // The keys_values (chunk_forward.h) of the chunks before, in order; empty if
  // `parent` is set.
  std::vector<at::Tensor> past;
  // The index of the chunk right before this one, if the same pass computes
  // that chunk; it is lower than this chunk's. Otherwise below 0.
  int64_t parent = -1;
};

// Serves every layer of a pass.
class ChunkAttention {
 public:
  // The chunks take the first of `rows` rows, in order. On CUDA rows may be
  // left over, whose results have no meaning. Throws c10::Error if the chunks
  // do not fit, and on the CPU if they leave rows.
  ChunkAttention(const std::vector<AttendedChunk>& chunks,
                 int64_t rows,
                 at::Device device);

  // Returns attention's result [N, H, D] for rotated q [N, H, D] and, for the
  // same rows, rotated keys and values [K, N, D].
  at::Tensor Attend(int64_t layer,
                    const at::Tensor& q,
                    const at::Tensor& keys,
                    const at::Tensor& values) const;

 private:
  // A part of the gathered keys: a chunk before the pass, or rows of the pass.
  struct Piece {
    at::Tensor past;
    RowRange rows;
  };
  struct Layout {
    std::vector<Piece> pieces;
    std::vector<RowRange> keys;  // of each chunk, then of the rows left over
  };
  static Layout LayOut(const std::vector<AttendedChunk>& chunks);
  ChunkAttention(const std::vector<AttendedChunk>& chunks,
                 int64_t rows,
                 Layout layout,
                 at::Device device);
  // Returns the keys (part 0) or values (part 1) of a layer, [M, K, D].
  at::Tensor Gather(int64_t layer, int64_t part, const at::Tensor& own) const;

  std::vector<Piece> pieces_;
  // Whether the keys are exactly the rows of the pass, in order.
  bool is_own_ = false;
  VariableLengthAttention attention_;
};

}  // namespace dapd
