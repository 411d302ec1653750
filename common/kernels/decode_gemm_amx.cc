// Products with panels of bfloat16 on processors with AMX.
#include "common/kernels/amx_tiles.h"
#include "common/kernels/decode_gemm_tiles.h"
#include "common/kernels/decode_kernel_cpu_levels.h"

namespace dapd::amx {

void AddTileGemmKernels(DecodeKernels* kernels) {
  SetTileProducts<AmxTiles>(kernels);
}

}  // namespace dapd::amx
