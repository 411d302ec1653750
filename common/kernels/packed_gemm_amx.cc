// PackedGemm on processors with AMX.
#include "common/kernels/amx_tiles.h"
#include "common/kernels/packed_gemm_tiles.h"

namespace dapd::amx {

PackedGemmKernel MakePackedGemmKernel() { return TileKernel<AmxTiles>(); }

}  // namespace dapd::amx
