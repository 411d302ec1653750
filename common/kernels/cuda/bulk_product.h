// The products of a decode step in bfloat16 by warp groups (sm_90): a second
// form of skinny_product.h, with the same operands, the same promises and other
// bits. A block's weights and rows of x arrive through the copy engine in a
// ring of shared memory, so a block of 128 columns reads x once, and no
// register waits for a number.
//
// This form has never run on a GPU. CudaDecodeOptions::bulk_products chooses
// it; until it is measured, no run does.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/kernels/cuda/product.h"
#include "common/kernels/cuda/skinny_product.h"

namespace dapd {

inline constexpr int64_t kBulkTile = 128;  // columns of y in a block
// A product of fewer columns has too few blocks to keep enough bytes under way.
inline constexpr int64_t kLeastBulkCols = 2048;
inline constexpr int64_t kMostBulkSlices = 8;  // the portable cluster

// Returns into how many slices the inner size is cut; a cluster of as many
// blocks adds them up. All blocks of a grid should run at the same time on an
// H100 with 132 multiprocessors; the number is the same on every device of
// sm_90, so that a product has the same bits on all.
constexpr int64_t BulkSlices(int64_t cols) {
  constexpr int64_t kMultiprocessors = 132;
  const int64_t tiles = (cols + kBulkTile - 1) / kBulkTile;
  return std::clamp<int64_t>(kMultiprocessors / tiles, 1, kMostBulkSlices);
}

// Returns whether DapdCudaBulkProduct computes the product on a device that has
// it. The number of rows plays no part beyond the limit, since it may not
// change the bits of a row.
constexpr bool IsBulk(const CudaProduct& product) {
  return IsSkinny(product) && product.cols >= kLeastBulkCols;
}

extern "C" {
// Returns 1 if the current device has the kernel, else 0.
int DapdCudaHasBulkProducts();
// Sums are float32 and rounded once. The launch in front must not write `w`.
int DapdCudaBulkProduct(const CudaProduct* product, void* stream);
}

}  // namespace dapd
