// The products of a decode step in bfloat16: few rows with large weights, which
// are read once. They differ from cuBLASLt's products (gemm.h) in two ways:
//
// * A row's bits depend only on the row, the weights, their shape and the
//   device's number of multiprocessors, and neither on the number of rows nor
//   on the row's place among them.
// * The launch may begin before the launch in front of it has ended and loads
//   its first weights meanwhile (device.cuh). With `early` it has also
//   multiplied the first columns of x when the last columns are written.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernels/cuda/product.h"

namespace dapd {

inline constexpr int64_t kMaxSkinnyRows = 32;
// Fewer rows take as long, since the kernel computes 8, 16 or 32.
inline constexpr int64_t kLeastSkinnyRows = 8;

// Returns whether DapdCudaSkinnyProduct computes the product: up to
// kMaxSkinnyRows rows in bfloat16, y = x w^T, the inner size and both strides
// multiples of 8.
constexpr bool IsSkinny(const CudaProduct& product) {
  return product.number == CudaNumber::kBFloat16 &&
         product.rows <= kMaxSkinnyRows && product.inner % 8 == 0 &&
         product.x_stride % 8 == 0 && product.w_stride % 8 == 0 &&
         !product.w_is_kn && product.alpha == 1.0F && product.beta == 0.0F;
}

// Returns the least number of rows that a step of up to `max_rows` sequences
// must have so that a sequence's bits do not depend on how many sequences run.
// Widths must be multiples of 8. The number is small if all products of the
// step are skinny; otherwise it is `max_rows`.
constexpr int64_t LeastStableRows(CudaNumber number, int64_t max_rows) {
  return number == CudaNumber::kBFloat16 && max_rows <= kMaxSkinnyRows
             ? std::min(kLeastSkinnyRows, max_rows)
             : max_rows;
}

inline constexpr int kSkinnyCols = 16;  // columns of y that a warp computes

// The warps of a block: `tiles` of kSkinnyCols columns by `slices` of the inner
// size, whose sums are added in order.
struct SkinnyPlan {
  int tiles = 0;
  int slices = 0;

  bool operator==(const SkinnyPlan&) const = default;
};

// The fewer columns there are, the more slices are needed to keep enough
// weights under way: a GPU with 3 TB/s and 0.7 us of latency has 2.1 MB under
// way, a warp here 6 KiB. All blocks should also run on the device at the same
// time, which has room for 16 warps per multiprocessor, because a few blocks in
// a second round cannot use the whole memory bandwidth.
constexpr SkinnyPlan PlanSkinnyProduct(int64_t cols, int64_t multiprocessors) {
  if (cols < 1024) return {1, 16};
  for (const int tiles : {2, 4, 8}) {
    if (cols <= multiprocessors * tiles * kSkinnyCols) {
      return {tiles, 16 / tiles};
    }
  }
  return {8, 1};
}

extern "C" {
// Sums are float32 and rounded once. The launch in front must not write `w`.
int DapdCudaSkinnyProduct(const CudaProduct* product, void* stream);
}

}  // namespace dapd
