#include "common/objective/chunk_tokens.h"

#include <algorithm>

namespace dapd {
namespace {

// A product's tiles have 128 rows: 64 tokens of two students, whose gradients
// one product leads back to hidden states.
constexpr int64_t kTileTokens = 64;

}  // namespace

int64_t ChunkTokens(int64_t tokens,
                    int64_t row_bytes,
                    int64_t chunk_bytes,
                    int64_t at_a_time) {
  int64_t most = std::max<int64_t>(1, chunk_bytes / row_bytes);
  if (at_a_time > 1) {
    for (const int64_t wave : {kTileTokens, at_a_time}) {
      if (most > wave) most -= most % wave;
    }
  }
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(most, (even + at_a_time - 1) / at_a_time * at_a_time);
}

}  // namespace dapd
