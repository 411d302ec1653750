// The loss kernel where the blocks of a cluster share a token's rows (sm_90):
// each has a part of all of them in its shared memory, so that a call reads
// every logit once and writes every gradient once. divergence_kernel.h has the
// arguments; the block kernel is the slow twin, and takes what this one
// declines.
//
// Clusters stay for the whole call and take one token after the other. Every
// thread loads, reads and writes entries of its own, in groups of four: once it
// has written its gradients it begins to copy the next token's, and only sums
// go from thread to thread, and from block to block.
//
// An entry's way through shared memory: z of every source; behind a student's
// first term the weighted pull of its terms lies in its `room`, and behind its
// last one its probability in place of z.
#pragma once

#include <optional>

#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

// How many tokens a call computes at a time in this way on the current device;
// 0: it does not take the call.
int DivergenceClusters(const CudaDivergenceArgs& args);

// Launches it, if it takes the call.
std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream);

}  // namespace dapd
