// How a rollout worker fills its steps and passes on a GPU: what it computes by
// (common/generation/cuda) and its memory is planned by (memory_plan.h).
#pragma once

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

}  // namespace dapd
