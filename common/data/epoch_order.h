// The order in which a run takes its problems: which rows make a step.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd {

// A permutation of 0..size-1: a pure function of (seed, epoch), equal to
// torch.randperm under a CPU generator seeded with seed + epoch.
std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

// The rows of a run's steps, which run through the epochs. The order of one
// epoch is kept, the last that was asked for, since making it takes time in
// proportion to the data. What a step has depends on the arguments only, not on
// the calls before. Not thread-safe.
class StepRows {
 public:
  // `size`: rows of the data, at least one.
  StepRows(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}

  // The `count` rows of step `step` (from 0), where every step has as many.
  std::vector<int64_t> Of(int64_t step, int64_t count);

 private:
  const int64_t size_;
  const uint64_t seed_;
  int64_t epoch_ = -1;  // of `order_`; below 0: none yet
  std::vector<int64_t> order_;
};

}  // namespace dapd
