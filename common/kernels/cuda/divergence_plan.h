// Where the rows of a call lie in the shared memory of a cluster's blocks
// (divergence_cluster.h). No code of a device: any compiler takes it.
#pragma once

#include <cstdint>
#include <optional>

#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

// Of what a call may have at most to be taken.
inline constexpr int kClusterMaxGiven = 8;  // sources with logits
inline constexpr int kClusterMaxTerms = 8;
inline constexpr int kClusterMaxMeasures =
    12;  // sources, and log-probabilities
inline constexpr int kClusterMaxBlocks = 16;

inline constexpr int kClusterThreads = 512;  // of a block
// Entries of a row that a thread takes at a time.
inline constexpr int kClusterGroup = 4;

// Where a call's rows lie in a block's shared memory, [slots, slice].
struct ClusterPlan {
  int blocks = 1;     // of a cluster
  int64_t slice = 0;  // entries of a row in a block, whole groups
  int num_slots = 0;
  int num_given = 0;
  // The source of each of the first slots; the slot of each source, -1 for a
  // routed one; and where a student's pull is added up.
  int given[kClusterMaxGiven] = {};
  int slot[kCudaMaxSources] = {};
  int room[kCudaMaxSources] = {};
  // Slots of rows that nothing needs behind the terms' sums: the next token's
  // are loaded there before its other rows.
  int num_free = 0;
  int free[kClusterMaxGiven] = {};
  // Of the student whose gradient is written last; -1: none is.
  int last_student = -1;
  bool wide = false;  // rows can be copied 16 bytes at a time

  int64_t shared_bytes() const {
    return num_slots * slice * static_cast<int64_t>(sizeof(float));
  }
};

// The slots of a call; none for one that the kernel does not take: supports, or
// more sources or terms than above.
std::optional<ClusterPlan> SlotsOf(const CudaDivergenceArgs& args);

}  // namespace dapd
