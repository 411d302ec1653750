// Computes AMX's products (common/kernels/tile_block.h) without the
// instructions and with the same bits. The code around them (packing, edges,
// blocks of k) is tested with it on processors without AMX, and the
// instructions are tested against it where they exist.
#pragma once

#include "common/kernels/decode_kernels.h"
#include "common/kernels/packed_gemm_cpu_levels.h"

namespace dapd::simulated_tiles {

// Both functions need a processor with AVX-512 BF16.
PackedGemmKernel MakePackedGemmKernel();
// Replaces the kernels that AMX's products replace.
void AddTileGemmKernels(DecodeKernels* kernels);

}  // namespace dapd::simulated_tiles
