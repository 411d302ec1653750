// The order in which a run takes its problems: which rows make a step.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd {

// A permutation of 0..size-1: a pure function of (seed, epoch), equal to
// torch.randperm under a CPU generator seeded with seed + epoch.
std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

// The `count` rows of step `step` (from 0), running through the epochs.
std::vector<int64_t> StepRows(int64_t size,
                              uint64_t seed,
                              int64_t step,
                              int64_t count);

}  // namespace dapd
