// AMX's products (common/kernels/tile_block.h) without the instructions, with
// the same bits: what surrounds them (packing, edges, blocks of k) is tested
// with it on processors that lack them, and the instructions against it where
// they are.
#pragma once

#include "common/kernels/decode_kernels.h"
#include "common/kernels/packed_gemm_cpu_levels.h"

namespace dapd::simulated_tiles {

// Both for processors with AVX-512 BF16.
PackedGemmKernel MakePackedGemmKernel();
// Replaces what AMX's products replace.
void AddTileGemmKernels(DecodeKernels* kernels);

}  // namespace dapd::simulated_tiles
