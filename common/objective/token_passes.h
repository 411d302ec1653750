// The passes from a chunk's logits to its sums and gradients
// (kernels/clipped_kl.h) on the device where the logits are.
#pragma once

#include <cstdint>

#include "common/kernels/clipped_kl.h"
#include "common/tensor/aten.h"

namespace dapd {

// Whether this build has them for `device` and that many sources and terms. A
// GPU needs a build with nvcc.
bool HasTokenPasses(at::Device device, size_t num_sources, size_t num_terms);

// Of `tokens` tokens; pointers are `device`'s, `sums` [tokens, terms]. On a GPU
// `gradient` is the dtype that the students' gradients are written in, bfloat16
// in the first half of each row; on the CPU it is float32.
void RunTokenPasses(at::Device device,
                    const KlChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    KlSums* sums);

}  // namespace dapd
