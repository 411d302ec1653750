// The loss kernel where the blocks of a cluster share a token's rows (sm_90):
// each has a part of all of them in its shared memory, so that a call reads
// every logit once and writes every gradient once. divergence_kernel.h has the
// arguments; the block kernel is the slow twin, and takes what this one
// declines.
//
// Clusters stay for the whole call and take one token after the other. Every
// thread loads, reads and writes entries of its own, in groups of four: where
// the gradient of a group is written, the copy of the next token's begins, and
// only sums go from thread to thread, and from block to block.
//
// An entry's way through shared memory: z of every source; behind a student's
// first term the weighted pull of its terms lies in its `room`, and behind its
// last one its probability in place of z.
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

// Where a call's rows lie in a block's shared memory, [slots, slice].
struct ClusterPlan {
  int blocks = 1;     // of a cluster
  int64_t slice = 0;  // entries of a row in a block, a multiple of 4
  int num_slots = 0;
  int num_given = 0;
  // The source of each of the first slots; the slot of each source, -1 for a
  // routed one; and where a student's pull is added up.
  int given[kClusterMaxGiven] = {};
  int slot[kCudaMaxSources] = {};
  int room[kCudaMaxSources] = {};
  bool wide = false;  // rows can be copied 16 bytes at a time

  int64_t shared_bytes() const {
    return num_slots * slice * static_cast<int64_t>(sizeof(float));
  }
};

// The slots of a call; none for one that the kernel does not take: supports, or
// more sources or terms than above.
std::optional<ClusterPlan> SlotsOf(const CudaDivergenceArgs& args);

// How many tokens a call computes at a time in this way on the current device;
// 0: it does not take the call.
int DivergenceClusters(const CudaDivergenceArgs& args);

// Launches it, if it takes the call.
std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream);

}  // namespace dapd
