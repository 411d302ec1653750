// The products of a decode step in bfloat16: few rows with large weights, which
// are read once. Beside cuBLASLt's (gemm.h) two things are different:
//
// * A row's bits depend on nothing but the row, the weights and their shape,
//   neither on how many rows there are nor on which of them it is.
// * The launch may begin before the one in front of it has ended, and its first
//   weights come while that one still runs (device.cuh); with `early` it is
//   that far when the last of x is there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernels/cuda/product.h"

namespace dapd {

inline constexpr int64_t kMaxSkinnyRows = 32;
// Fewer take as long: the kernel computes 8, 16 or 32.
inline constexpr int64_t kLeastSkinnyRows = 8;

// Whether DapdCudaSkinnyProduct computes it: up to kMaxSkinnyRows rows in
// bfloat16, y = x w^T, the inner size and both strides multiples of 8.
constexpr bool IsSkinny(const CudaProduct& product) {
  return product.number == CudaNumber::kBFloat16 &&
         product.rows <= kMaxSkinnyRows && product.inner % 8 == 0 &&
         product.x_stride % 8 == 0 && product.w_stride % 8 == 0 &&
         !product.w_is_kn && product.alpha == 1.0F && product.beta == 0.0F;
}

// How many rows a step of up to `max_rows`, whose widths are multiples of 8,
// may have at the least so that a sequence's bits do not depend on how many
// run: few where all of its products are skinny, else always as many.
constexpr int64_t LeastStableRows(CudaNumber number, int64_t max_rows) {
  return number == CudaNumber::kBFloat16 && max_rows <= kMaxSkinnyRows
             ? std::min(kLeastSkinnyRows, max_rows)
             : max_rows;
}

extern "C" {
// Sums are float32 and rounded once. `w` must not be written by the launch in
// front of this one.
int DapdCudaSkinnyProduct(const CudaProduct* product, void* stream);
}

}  // namespace dapd
