#include "tests/fakes/played_tiles.h"

#include "common/kernels/decode_gemm_tiles.h"
#include "common/kernels/packed_gemm_tiles.h"

namespace dapd::played_tiles {
namespace {

// TDPBF16PS as Intel defines it: of each pair of a row of A and the pair below
// it in B, the even entries' products are summed apart from the odd ones', by
// fused multiply-adds; then both sums, added up, join the element. Denormal
// numbers are not made zero: no test's numbers are as small.
class PlayedTiles {
 public:
  explicit PlayedTiles(int64_t rows) : rows_(rows) {
    if (rows < 1 || rows > kTileBlock || in_use) __builtin_trap();
    in_use = true;
  }
  ~PlayedTiles() { in_use = false; }
  PlayedTiles(const PlayedTiles&) = delete;
  PlayedTiles& operator=(const PlayedTiles&) = delete;

  void Clear() {
    for (auto& row : block_) {
      for (float& sum : row) sum = 0.0F;
    }
  }

  void MultiplyAdd(const uint32_t* a, int64_t stride, const uint32_t* b) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t column = 0; column < kTileBlock; ++column) {
        float even = 0.0F;
        float odd = 0.0F;
        for (int64_t s = 0; s < kTileWords; ++s) {
          const uint32_t pair = a[row * stride + s];
          const uint32_t other = b[s * kTileBlock + column];
          even = __builtin_fmaf(
              FloatFromBits(pair << 16), FloatFromBits(other << 16), even);
          odd = __builtin_fmaf(FloatFromBits(pair & 0xFFFF0000U),
                               FloatFromBits(other & 0xFFFF0000U),
                               odd);
        }
        block_[row][column] += even + odd;
      }
    }
  }

  void Store(float* c, int64_t stride) const {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t column = 0; column < kTileBlock; ++column) {
        c[row * stride + column] = block_[row][column];
      }
    }
  }

 private:
  static inline thread_local bool in_use = false;

  const int64_t rows_;
  float block_[kTileBlock][kTileBlock];
};

}  // namespace

PackedGemmKernel MakePackedGemmKernel() { return TileKernel<PlayedTiles>(); }

void AddTileGemmKernels(DecodeKernels* kernels) {
  SetTileProducts<PlayedTiles>(kernels);
}

}  // namespace dapd::played_tiles
