#include "tests/fakes/simulated_tiles.h"

#include "common/kernels/decode_gemm_tiles.h"
#include "common/kernels/packed_gemm_tiles.h"

namespace dapd::simulated_tiles {
namespace {

// A subnormal number counts as zero, as an input and as a result.
float Flushed(float value) {
  constexpr float kLeastNormal = 0x1p-126F;
  return __builtin_fabsf(value) < kLeastNormal ? value * 0.0F : value;
}

float AddProduct(uint32_t a, uint32_t b, float sum) {
  return Flushed(__builtin_fmaf(
      Flushed(FloatFromBits(a)), Flushed(FloatFromBits(b)), sum));
}

// Computes TDPBF16PS bit by bit. For each column of B, the products of the even
// entries of a row of A are summed separately from the products of the odd
// entries; the total of both sums is added to the block.
class SimulatedTiles {
 public:
  explicit SimulatedTiles(int64_t rows) : rows_(rows) {
    if (rows < 1 || rows > kTileBlock || in_use) __builtin_trap();
    in_use = true;
  }
  ~SimulatedTiles() { in_use = false; }
  SimulatedTiles(const SimulatedTiles&) = delete;
  SimulatedTiles& operator=(const SimulatedTiles&) = delete;

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
          even = AddProduct(pair << 16, other << 16, even);
          odd = AddProduct(pair & 0xFFFF0000U, other & 0xFFFF0000U, odd);
        }
        float& sum = block_[row][column];
        sum = Flushed(sum + Flushed(even + odd));
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

PackedGemmKernel MakePackedGemmKernel() { return TileKernel<SimulatedTiles>(); }

void AddTileGemmKernels(DecodeKernels* kernels) {
  SetTileProducts<SimulatedTiles>(kernels);
}

}  // namespace dapd::simulated_tiles
