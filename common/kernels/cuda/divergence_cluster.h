// The loss kernel in which the blocks of a cluster share a token's rows
// (sm_90). Each block holds a part of all rows in its shared memory, so a call
// reads every logit once and writes every gradient once. divergence_kernel.h
// has the arguments; the block kernel is the slow twin and takes the calls that
// this kernel declines.
//
// Clusters stay for the whole call and take one token after the other. Every
// thread loads, reads and writes entries of its own, in groups of four. Once it
// has written the gradients of a group it begins to copy the next token's
// entries there. Only sums pass between threads and between blocks.
//
// An entry in shared memory changes its meaning: first it is z of every source.
// After a student's first term, the student's `room` holds the weighted pull of
// its terms; after its last term, its probability takes the place of z.
#pragma once

#include <optional>

#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

// Returns how many tokens a call computes at a time with clusters on the
// current device; 0 if this kernel declines the call.
int DivergenceClusters(const CudaDivergenceArgs& args);

// Launches the kernel if it takes the call.
std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream);

}  // namespace dapd
