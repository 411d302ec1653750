#include "common/objective/chunk_tokens.h"

#include <algorithm>

namespace dapd {
namespace {

// A tile of a product has 128 rows: 64 tokens of two students. One product
// computes the gradients of their hidden states.
constexpr int64_t kTileTokens = 64;

constexpr int64_t kGpuBytes = 1'000'000'000;
// common/base/cuda_environment.h; LibTorch's own choice on sm_90 is the same.
constexpr int64_t kProductWorkspace = int64_t{32} << 20;

}  // namespace

int64_t ChunkTokens(int64_t tokens,
                    int64_t row_bytes,
                    int64_t chunk_bytes,
                    int64_t at_a_time) {
  int64_t most = std::max<int64_t>(1, chunk_bytes / row_bytes);
  if (at_a_time > 1) {
    if (most > kTileTokens) most -= most % kTileTokens;
    // With many small waves the last wave costs less than a tile that is partly
    // empty.
    const bool breaks_tiles = at_a_time < kTileTokens && most >= kTileTokens;
    if (most > at_a_time && !breaks_tiles) most -= most % at_a_time;
  }
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(most, (even + at_a_time - 1) / at_a_time * at_a_time);
}

int64_t ChunkBytesOfToken(const HeadLossShape& shape) {
  constexpr int64_t kLogit = 4;
  constexpr int64_t kNarrowLogit = 2;
  constexpr int64_t kSupportEntry = 4 + 8;
  const int64_t logits = (shape.rows - shape.narrow_rows) * kLogit +
                         shape.narrow_rows * kNarrowLogit;
  return logits * shape.vocabulary + shape.source_bytes +
         shape.gradients * shape.hidden * shape.number_bytes +
         shape.supports * kSupportEntry;
}

int64_t GpuChunkBytes(int64_t kept_bytes) {
  return kGpuBytes - kProductWorkspace - kept_bytes;
}

}  // namespace dapd
