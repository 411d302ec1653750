// AMX's products without the instructions: what surrounds them (packing, edges,
// blocks of k) is tested with it on processors that lack them.
#pragma once

#include "common/kernels/packed_gemm_cpu_levels.h"

namespace dapd::played_tiles {

// For processors with AVX-512 BF16.
PackedGemmKernel MakePackedGemmKernel();

}  // namespace dapd::played_tiles
