// Decides the order in which a run takes its problems, and the rows of each
// step.
#pragma once

#include <cstdint>
#include <vector>

namespace dapd {

// Returns a permutation of 0..size-1. It depends on (seed, epoch) only, and
// equals torch.randperm with a CPU generator that is seeded with seed + epoch.
std::vector<int64_t> EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

// Computes the rows of a run's steps, which run through the epochs. It keeps
// the order of the epoch that was asked for last, since making an order takes
// time in proportion to the data. The rows of a step depend on the arguments
// only, not on earlier calls. Not thread-safe.
class StepRows {
 public:
  // `size` is the number of rows of the data, at least one.
  StepRows(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}

  // Returns the `count` rows of step `step` (from 0). Every step must have the
  // same `count`.
  std::vector<int64_t> Of(int64_t step, int64_t count);

 private:
  const int64_t size_;
  const uint64_t seed_;
  int64_t epoch_ = -1;  // epoch of `order_`; below 0 there is none yet
  std::vector<int64_t> order_;
};

}  // namespace dapd
