// PackedGemm on processors with AMX.
#include <immintrin.h>

#include "common/kernels/packed_gemm_tiles.h"

namespace dapd::amx {
namespace {

// What LDTILECFG reads.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Tiles 0 to 3 are the block, row by row; 4 and 5 hold A, 6 and 7 B. The
// intrinsics take tiles as literals.
struct AmxTiles {
  static void Configure() {
    const TileConfiguration configuration;
    _tile_loadconfig(&configuration);
  }
  static void Release() { _tile_release(); }

  static void Clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }

  static void MultiplyAdd(const uint32_t* a,
                          const uint32_t* b,
                          int64_t stride) {
    constexpr int64_t kWordBytes = sizeof(uint32_t);
    _tile_loadd(4, a, stride * kWordBytes);
    _tile_loadd(6, b, kTileBlock * kWordBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileWords, kTileBlock * kWordBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileWords * stride, stride * kWordBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

  static void Store(float* c) {
    constexpr int64_t kRowBytes = kTileBlock * sizeof(float);
    _tile_stored(0, c, kRowBytes);
    _tile_stored(1, c + 16, kRowBytes);
    _tile_stored(2, c + 16 * kTileBlock, kRowBytes);
    _tile_stored(3, c + 16 * kTileBlock + 16, kRowBytes);
  }
};

}  // namespace

PackedGemmKernel MakePackedGemmKernel() { return TileKernel<AmxTiles>(); }

}  // namespace dapd::amx
