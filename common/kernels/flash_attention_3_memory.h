// The memory that a launch of FlashAttention-3 works in
// (cuda/flash_attention_3.h): which numbers, and where they lie. Whoever
// launches allocates it; plans of memory count it.
#pragma once

#include <cstdint>

namespace dapd {

// Sequences side by side, as VariableLengthAttention has them.
struct FlashAttention3Shape {
  int64_t sequences = 0;
  int64_t q_rows = 0;     // N
  int64_t k_rows = 0;     // M
  int64_t longest_q = 0;  // at least the tokens of the longest sequence
  int64_t longest_k = 0;
  int64_t heads = 0;     // H, a multiple of kv_heads
  int64_t kv_heads = 0;  // K
  int64_t head_dim = 0;  // D
};

// Returns whether there are kernels for heads of this width. The backward pass
// has a fixed order of sums for two of the three widths.
constexpr bool HasFlashAttention3(int64_t head_dim, bool is_deterministic) {
  return head_dim == 64 || head_dim == 128 ||
         (head_dim == 256 && !is_deterministic);
}

// The rows of queries and keys that a block of the backward pass has at a time.
// Longer tiles of these kernels do not fit into shared memory.
struct FlashAttention3Tile {
  int64_t queries = 0;
  int64_t keys = 0;
};
constexpr FlashAttention3Tile BackwardTileOf(int64_t head_dim) {
  if (head_dim == 64) return {128, 128};
  return {64, head_dim == 128 ? 128 : 80};
}

// The places of a forward launch's working memory: the number of int32 before
// each. Each of the four vectors has an entry per sequence and begins at a
// multiple of 16 bytes.
struct FlashAttention3ForwardMemory {
  int64_t splits = 0;
  int64_t blocks = 0;
  int64_t order = 0;        // sequences, those with most work first
  int64_t heads_in_l2 = 0;  // how many heads' keys stay in the cache at a time
  int64_t next_tile = 0;    // one counter
  int64_t bytes = 0;        // of all
};
FlashAttention3ForwardMemory ForwardMemoryOf(const FlashAttention3Shape& shape);

// The places of a backward launch's working memory in bytes, each a multiple of
// 256. The rows of a sequence are rounded up to whole tiles, of queries or of
// keys, and so are the rows of all.
struct FlashAttention3BackwardMemory {
  // The launch clears the first four. Locks make the order of sums fixed.
  int64_t grad_k = 0;   // [K, rounded k_rows, D] float32
  int64_t grad_v = 0;   // as grad_k
  int64_t k_locks = 0;  // [tiles of the longest keys, sequences, K] int32
  int64_t v_locks = 0;  // as k_locks; both are empty without a fixed order
  int64_t cleared = 0;  // the bytes of these four

  int64_t grad_q = 0;     // [H, rounded q_rows, D] float32
  int64_t row_sums = 0;   // [H, rounded q_rows] float32
  int64_t logsumexp = 0;  // as row_sums, with base 2
  int64_t q_locks = 0;    // [tiles of the longest queries, sequences, H] int32
  int64_t bytes = 0;      // of all
};
FlashAttention3BackwardMemory BackwardMemoryOf(
    const FlashAttention3Shape& shape, bool is_deterministic);

// Returns the rows of `rows` rows in `sequences` sequences, rounded to tiles of
// `tile` rows.
int64_t RowsInTiles(int64_t rows, int64_t sequences, int64_t tile);

}  // namespace dapd
