// Plans where the rows of a call lie in the shared memory of a cluster's blocks
// (divergence_cluster.h). This file has no device code: any compiler takes it.
#pragma once

#include <cstdint>
#include <optional>

#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

// The kernel takes calls up to these limits.
inline constexpr int kClusterMaxGiven = 8;  // sources with logits
inline constexpr int kClusterMaxTerms = 8;
inline constexpr int kClusterMaxMeasures =
    12;  // sources, and log-probabilities
inline constexpr int kClusterMaxBlocks = 16;

// Warps of a block. With 32 warps each thread has half the registers, and twice
// as many warps hide the latencies of a token. That form has never run on a
// GPU; until it is measured, calls have 16 unless they ask for more.
inline constexpr int kClusterWarps = 16;
inline constexpr int kMoreClusterWarps = 32;
// Entries of a row that a thread processes at a time.
inline constexpr int kClusterGroup = 4;

// The places of a call's rows in a block's shared memory, [slots, slice].
struct ClusterPlan {
  int blocks = 1;     // of a cluster
  int64_t slice = 0;  // entries of a row in a block, in whole groups
  int num_slots = 0;
  int num_given = 0;
  // `given` has the source of each of the first slots, `slot` the slot of each
  // source (-1 for a routed source), `room` the slot where a student's pull is
  // added up.
  int given[kClusterMaxGiven] = {};
  int slot[kCudaMaxSources] = {};
  int room[kCudaMaxSources] = {};
  // Slots of rows that nothing needs after the terms' sums. The next token's
  // rows are loaded there before its other rows.
  int num_free = 0;
  int free[kClusterMaxGiven] = {};
  // The slot of the student whose gradient is written last; -1 if no gradient
  // is written.
  int last_student = -1;
  bool wide = false;        // rows can be copied a group at a time
  bool has_narrow = false;  // some rows hold bfloat16 logits

  int64_t shared_bytes() const {
    return num_slots * slice * static_cast<int64_t>(sizeof(float));
  }
};

// Returns the slots of a call, or nothing for a call that the kernel does not
// take: one with supports, or with more sources or terms than the limits above.
std::optional<ClusterPlan> SlotsOf(const CudaDivergenceArgs& args);

}  // namespace dapd
