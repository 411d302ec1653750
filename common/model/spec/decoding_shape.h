// The sizes of a rollout worker's steps and passes on a GPU.
// common/generation/cuda computes by these numbers, and decoding_memory.h plans
// memory by them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dapd {

// The most sequences that are decoded side by side.
inline constexpr int64_t kGpuDecodeSlots = 128;
// A pass takes no more prompts once it has this many tokens, so that running
// sequences do not wait long.
inline constexpr int64_t kPrefillTokens = 2048;
// Rows of a product over prompts: enough for the weights to be read no more
// often than the matrix units take to multiply with them, few enough that a
// short prompt alone is soon done.
inline constexpr int64_t kPrefillRows = 512;
// The most prompts of one pass.
inline constexpr int64_t kPrefillPrompts = 16;
// The tokens of a prompt that are scored at a time (score_rows.h): few, because
// each takes two rows as long as the vocabulary.
inline constexpr int64_t kScoredRows = 32;
// Longer sequences are refused, because scratch and tables grow with the
// length. Qwen3's 40,960 positions fit.
inline constexpr int64_t kGpuLongestSequence = 65536;
// The shortest context for which a graph is captured; the next ones are
// doublings of it.
inline constexpr int64_t kGpuShortestContext = 1024;

// Returns the rows of a step that has at most `slots` sequences.
constexpr int64_t GpuDecodeRows(int64_t slots) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::min(slots, kGpuDecodeSlots))));
}

// Returns the columns of an adapter: tensor cores need widths that are
// multiples of 16 bytes.
constexpr int64_t PaddedRank(int64_t rank) { return (rank + 7) / 8 * 8; }

}  // namespace dapd
