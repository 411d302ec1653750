// Decides how many tokens the head loss computes at a time.
#pragma once

#include <cstdint>

namespace dapd {

// Splits `tokens` tokens with `row_bytes` of logits each into chunks of at most
// `chunk_bytes` and of about the same size, and returns the tokens of a chunk,
// at least 1. `at_a_time` is the number of tokens that a device computes side
// by side; 1 on the CPU. If it is more than 1, a chunk is a multiple of the
// tokens that fill the tiles of a product. If `at_a_time` is larger than that,
// or no tile fits, a chunk is a multiple of `at_a_time`, so that hardly any of
// the device idles at its end. A chunk is no multiple if `chunk_bytes` has no
// room for it.
int64_t ChunkTokens(int64_t tokens,
                    int64_t row_bytes,
                    int64_t chunk_bytes,
                    int64_t at_a_time);

// Sizes of a call of the head loss on a GPU.
struct HeadLossShape {
  int64_t vocabulary = 0;
  int64_t hidden = 0;        // numbers of a student's hidden state
  int64_t number_bytes = 2;  // bytes of one such number
  // Bytes of a token's hidden states of all sources, whose widths may differ.
  int64_t source_bytes = 0;
  // Counts per token: rows of logits, rows that have a gradient, and entries of
  // all supports.
  int64_t rows = 0;
  int64_t narrow_rows = 0;  // of these, with bfloat16 logits
  int64_t gradients = 0;
  int64_t supports = 0;
};

// Returns the bytes of a token while its chunk is computed: logits, the hidden
// states that are stacked for their products, the gradients on their way to
// their places, values and ids of the supports.
int64_t ChunkBytesOfToken(const HeadLossShape& shape);

// Returns the bytes of a chunk with which a call takes 1 GB of a GPU. The 1 GB
// includes the workspace of cuBLAS and `kept_bytes`, which stay from the first
// token to the last.
int64_t GpuChunkBytes(int64_t kept_bytes);

}  // namespace dapd
