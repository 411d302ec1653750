// How many tokens the head loss computes at a time.
#pragma once

#include <cstdint>

namespace dapd {

// Of `tokens` tokens with `row_bytes` of logits each, chunks of at most
// `chunk_bytes`, all of about the same size; at least one token. `at_a_time`:
// the tokens that a device computes side by side; 1: one after another. Where
// it is more, a chunk has a multiple of what the products' tiles have rows for
// and, where they are more than that or there is no room for a tile, of them,
// so that hardly any of the device idles at its end; except where memory has no
// room for as many.
int64_t ChunkTokens(int64_t tokens,
                    int64_t row_bytes,
                    int64_t chunk_bytes,
                    int64_t at_a_time);

// What a call of the head loss computes on a GPU.
struct HeadLossShape {
  int64_t vocabulary = 0;
  int64_t hidden = 0;        // numbers of a hidden state
  int64_t number_bytes = 2;  // of one of them
  // Of a token: rows of logits, those that are products with the head, those
  // of them that have a gradient, entries of all supports.
  int64_t rows = 0;
  int64_t products = 0;
  int64_t gradients = 0;
  int64_t supports = 0;
};

// Bytes of a token while its chunk is computed: logits, the hidden states that
// are stacked for their product, the gradients on their way to their places,
// values and ids of the supports.
int64_t ChunkBytesOfToken(const HeadLossShape& shape);

// Bytes of a chunk for which a call takes 1 GB of a GPU, cuBLAS's workspace and
// `kept_bytes` that stay from its first token to its last among them.
int64_t GpuChunkBytes(int64_t kept_bytes);

}  // namespace dapd
