#include "tests/fakes/played_tiles.h"

#include "common/kernels/packed_gemm_tiles.h"

namespace dapd::played_tiles {
namespace {

// TDPBF16PS: each pair of a row of A times the pair below it in B, added to the
// sum in float32, the even entry first.
struct PlayedTiles {
  static inline thread_local float block[kTileBlock][kTileBlock];
  static inline thread_local bool configured = false;

  static void Configure() { configured = true; }
  static void Release() { configured = false; }

  static void Clear() {
    for (auto& row : block) {
      for (float& sum : row) sum = 0.0F;
    }
  }

  static void MultiplyAdd(const uint32_t* a,
                          const uint32_t* b,
                          int64_t stride) {
    if (!configured) __builtin_trap();
    for (int64_t row = 0; row < kTileBlock; ++row) {
      for (int64_t s = 0; s < kTileWords; ++s) {
        const uint32_t pair = a[row * stride + s];
        for (int64_t column = 0; column < kTileBlock; ++column) {
          const uint32_t other = b[s * kTileBlock + column];
          float& sum = block[row][column];
          sum += FloatFromBits(pair << 16) * FloatFromBits(other << 16);
          sum += FloatFromBits(pair & 0xFFFF0000U) *
                 FloatFromBits(other & 0xFFFF0000U);
        }
      }
    }
  }

  static void Store(float* c) {
    for (const auto& row : block) {
      for (const float sum : row) *c++ = sum;
    }
  }
};

}  // namespace

PackedGemmKernel MakePackedGemmKernel() { return TileKernel<PlayedTiles>(); }

}  // namespace dapd::played_tiles
