// How a rollout worker fills its steps and passes on a GPU: what it computes by
// (common/generation/cuda) and its memory is planned by (decoding_memory.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dapd {

// Sequences that are decoded side by side, at most.
inline constexpr int64_t kGpuDecodeSlots = 128;
// A pass takes prompts until it has that many tokens, so that running sequences
// go on.
inline constexpr int64_t kPrefillTokens = 2048;
// Rows of a product over prompts: enough for the weights to be read no more
// often than the matrix units take to multiply with them, few enough that a
// short prompt alone is soon done.
inline constexpr int64_t kPrefillRows = 512;
// Prompts of one pass.
inline constexpr int64_t kPrefillPrompts = 16;
// Longer sequences are refused: scratch and tables grow with it. Qwen3's 40,960
// fit.
inline constexpr int64_t kGpuLongestSequence = 65536;
// A graph is captured for contexts of this many tokens, and for doublings of
// it.
inline constexpr int64_t kGpuShortestContext = 1024;

// Rows of a step that has so many sequences at the most.
constexpr int64_t GpuDecodeRows(int64_t slots) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::min(slots, kGpuDecodeSlots))));
}

// Columns of an adapter: tensor cores want widths that are multiples of 16
// bytes.
constexpr int64_t PaddedRank(int64_t rank) { return (rank + 7) / 8 * 8; }

}  // namespace dapd
