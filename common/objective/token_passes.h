// Runs the passes from a chunk's logits to its sums and gradients
// (kernels/divergence_kernel.h) on the device of the logits.
#pragma once

#include <cstdint>

#include "common/kernels/divergence_kernel.h"
#include "common/tensor/aten.h"

namespace dapd {

// Counts of a call.
struct TokenPassCounts {
  size_t sources = 0;
  size_t derived = 0;
  size_t terms = 0;
  int64_t support = 0;  // entries of the supports of all terms
};

// Returns whether this build has passes for `device` and these counts. A GPU
// needs a build with nvcc.
bool HasTokenPasses(at::Device device, const TokenPassCounts& counts);

// Returns how many tokens of such a chunk the passes compute at a time: a chunk
// of a multiple of them leaves nothing idle at its end. The rows of `chunk`
// need not exist yet.
int64_t TokenPassesAtATime(at::Device device,
                           const DivergenceChunk& chunk,
                           at::ScalarType gradient);

// Runs the passes over `tokens` tokens. Pointers are pointers of `device`;
// `sums` is [tokens, terms]. On a GPU `gradient` is the dtype in which the
// students' gradients are written; bfloat16 fills the first half of each row.
// On the CPU it is float32.
void RunTokenPasses(at::Device device,
                    const DivergenceChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    DivergenceTokenSums* sums);

}  // namespace dapd
