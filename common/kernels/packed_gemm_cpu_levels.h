// Declares the table that packed_gemm_part.cc, and for amx packed_gemm_amx.cc,
// makes for packed_gemm.cc, once per CpuLevel.
#pragma once

#include "common/kernels/packed_gemm.h"

namespace dapd {

// Up to this k a row of C is summed at once. A larger k is summed block by
// block, which needs a float32 C.
inline constexpr int64_t kGemmWholeDepth = 4096;

struct PackedGemmKernel {
  int64_t tile_rows;
  int64_t tile_columns;
  // Computes C[row_begin:row_end, column_begin:column_end]. Rows and columns
  // begin at multiples of the tile.
  void (*run)(const GemmOperands& operands,
              int64_t row_begin,
              int64_t row_end,
              int64_t column_begin,
              int64_t column_end);
};

namespace baseline {
PackedGemmKernel MakePackedGemmKernel();
}
namespace avx2 {
PackedGemmKernel MakePackedGemmKernel();
}
namespace avx512 {
PackedGemmKernel MakePackedGemmKernel();
}
namespace avx512_bf16 {
PackedGemmKernel MakePackedGemmKernel();
}
namespace amx {
PackedGemmKernel MakePackedGemmKernel();
}

}  // namespace dapd
