#include "common/kernels/flash_attention_3_memory.h"

namespace dapd {
namespace {

constexpr int64_t kInt = 4;
constexpr int64_t kFloat = 4;
// The kernels copy with the tensor memory accelerator, whose addresses are
// multiples of 128 bytes at most.
constexpr int64_t kAlignment = 256;
// Vectors of int32 that begin at multiples of 16 bytes.
constexpr int64_t kVectorEntries = 4;

int64_t RoundUp(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

int64_t Tiles(int64_t rows, int64_t tile) { return RoundUp(rows, tile) / tile; }

}  // namespace

int64_t RowsInTiles(int64_t rows, int64_t sequences, int64_t tile) {
  return RoundUp(rows + sequences * tile, tile);
}

FlashAttention3ForwardMemory ForwardMemoryOf(
    const FlashAttention3Shape& shape) {
  const int64_t vector = RoundUp(shape.sequences, kVectorEntries);
  return {.splits = 0,
          .blocks = vector,
          .order = 2 * vector,
          .heads_in_l2 = 3 * vector,
          .next_tile = 4 * vector,
          .bytes = (4 * vector + 1) * kInt};
}

FlashAttention3BackwardMemory BackwardMemoryOf(
    const FlashAttention3Shape& shape, bool is_deterministic) {
  const FlashAttention3Tile tile = BackwardTileOf(shape.head_dim);
  const int64_t q_rows =
      shape.heads * RowsInTiles(shape.q_rows, shape.sequences, tile.queries);
  const int64_t k_rows =
      shape.kv_heads * RowsInTiles(shape.k_rows, shape.sequences, tile.keys);
  const int64_t k_locks =
      is_deterministic
          ? Tiles(shape.longest_k, tile.keys) * shape.sequences * shape.kv_heads
          : 0;
  int64_t end = 0;
  const auto take = [&end](int64_t bytes) {
    const int64_t begin = end;
    end = RoundUp(end + bytes, kAlignment);
    return begin;
  };
  FlashAttention3BackwardMemory memory;
  memory.grad_k = take(k_rows * shape.head_dim * kFloat);
  memory.grad_v = take(k_rows * shape.head_dim * kFloat);
  memory.k_locks = take(k_locks * kInt);
  memory.v_locks = take(k_locks * kInt);
  memory.cleared = end;
  memory.grad_q = take(q_rows * shape.head_dim * kFloat);
  memory.row_sums = take(q_rows * kFloat);
  memory.logsumexp = take(q_rows * kFloat);
  memory.q_locks = take(Tiles(shape.longest_q, tile.queries) * shape.sequences *
                        shape.heads * kInt);
  memory.bytes = end;
  return memory;
}

}  // namespace dapd
