// The passes from a chunk's logits to its sums and gradients
// (kernels/divergence_kernel.h) on the device where the logits are.
#pragma once

#include <cstdint>

#include "common/kernels/divergence_kernel.h"
#include "common/tensor/aten.h"

namespace dapd {

// How many of each a call has.
struct TokenPassCounts {
  size_t sources = 0;
  size_t derived = 0;
  size_t terms = 0;
  int64_t support = 0;  // entries of all terms' supports
};

// Whether this build has them for `device` and that much. A GPU needs a build
// with nvcc.
bool HasTokenPasses(at::Device device, const TokenPassCounts& counts);

// How many tokens of such a chunk they compute at a time: a chunk of a multiple
// leaves nothing idle at its end. Its rows need not be there yet.
int64_t TokenPassesAtATime(at::Device device,
                           const DivergenceChunk& chunk,
                           at::ScalarType gradient);

// Of `tokens` tokens; pointers are `device`'s, `sums` [tokens, terms]. On a GPU
// `gradient` is the dtype that the students' gradients are written in, bfloat16
// in the first half of each row; on the CPU it is float32.
void RunTokenPasses(at::Device device,
                    const DivergenceChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    DivergenceTokenSums* sums);

}  // namespace dapd
