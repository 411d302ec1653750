// How many tokens the head loss computes at a time.
#pragma once

#include <cstdint>

namespace dapd {

// Of `tokens` tokens with `row_bytes` of logits each, chunks of at most
// `chunk_bytes`, all of about the same size; at least one token. `at_a_time`:
// the tokens that a device computes side by side; 1: one after another. Where
// it is more, a chunk has a multiple of them and of what the products' tiles
// have rows for, so that none of the device idles at its end, except where
// memory has no room for as many.
int64_t ChunkTokens(int64_t tokens,
                    int64_t row_bytes,
                    int64_t chunk_bytes,
                    int64_t at_a_time);

}  // namespace dapd
