// A warp multiplies 16 columns of y, rows of w, with a slice of their length by
// tensor cores. Lanes load what they multiply themselves, 16 bytes of a row at
// a time: weights past shared memory, four steps ahead; x, which all blocks
// read, out of the caches. The warps of a block stand side by side over
// columns, which share x, and over slices, whose sums are added in order. So a
// sum depends on the inner size and on how many slices the number of columns
// asks for.

#include <cstdint>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/cuda/tensor_core.cuh"

namespace dapd {
namespace {

constexpr int kTile = 16;    // columns of y of a warp
constexpr int kRowTile = 8;  // rows of an instruction
constexpr int kStep = 32;    // numbers of a row that a warp takes at a time
constexpr int kAhead = 4;    // steps of weights under way

// Of rows l / 4 and l / 4 + 8 of a tile of w, in lane l.
struct Weights {
  BFloat16Pairs upper;
  BFloat16Pairs lower;
};

// Zeros if not `is_in`.
__device__ inline BFloat16Pairs LoadIf(bool is_in, const BFloat16* from) {
  BFloat16Pairs pairs = {};
  if (is_in) pairs = *reinterpret_cast<const BFloat16Pairs*>(from);
  return pairs;
}

// What this lane multiplies.
struct Share {
  const BFloat16* upper;  // the rows of w, null behind the last
  const BFloat16* lower;
  int64_t begin;  // of the warp's slice
  int64_t end;
  int offset;  // of the lane's numbers in a step

  __device__ void Load(int64_t step, Weights (&weights)[kAhead]) const {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = step + i * kStep + offset;
      const bool is_in = at < end;
      weights[i].upper = LoadIf(is_in && upper != nullptr, upper + at);
      weights[i].lower = LoadIf(is_in && lower != nullptr, lower + at);
    }
  }
};

__device__ inline Share ShareOf(const CudaProduct& product,
                                int64_t first_col,
                                int slice,
                                int num_slices) {
  const int lane = threadIdx.x % kWarp;
  const auto* w = static_cast<const BFloat16*>(product.w);
  const int64_t col = first_col + lane / 4;
  const int64_t steps = (product.inner + kStep - 1) / kStep;
  const int64_t length = (steps + num_slices - 1) / num_slices * kStep;
  return {col < product.cols ? w + col * product.w_stride : nullptr,
          col + 8 < product.cols ? w + (col + 8) * product.w_stride : nullptr,
          slice * length,
          min(product.inner, (slice + 1) * length),
          lane % 4 * 8};
}

// y of a block's columns, by all its threads: the slices' sums in order,
// rounded once.
template <int kSlices, int kRows, int kPadded>
__device__ inline void AddSlices(const float (&slices)[kSlices][kRows][kPadded],
                                 const CudaProduct& product,
                                 int64_t first_col,
                                 int num_cols) {
  const int num_sums = static_cast<int>(product.rows) * num_cols;
  for (int i = threadIdx.x; i < num_sums; i += blockDim.x) {
    const int row = i / num_cols;
    const int col = i % num_cols;
    if (first_col + col >= product.cols) continue;
    float sum = 0.0F;
    for (int slice = 0; slice < kSlices; ++slice)
      sum += slices[slice][row][col];
    const int64_t at = row * product.y_stride + first_col + col;
    if (product.float_result) {
      static_cast<float*>(product.y)[at] = sum;
    } else {
      static_cast<BFloat16*>(product.y)[at] = FromFloat<BFloat16>(sum);
    }
  }
}

template <int kRowTiles, int kTiles, int kSlices>
__global__ void __launch_bounds__(kTiles* kSlices* kWarp,
                                  kTiles* kSlices > 8 ? 1 : 2)
    SkinnyProduct(CudaProduct product) {
  constexpr int kCols = kTiles * kTile;
  constexpr int kRows = kRowTiles * kRowTile;
  // Four floats more: the lanes of a warp write to banks of their own.
  __shared__ float slices[kSlices][kRows][kCols + 4];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int tile = warp % kTiles;
  const int slice = warp / kTiles;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kCols;
  const Share share =
      ShareOf(product, first_col + tile * kTile, slice, kSlices);
  Weights next[kAhead];
  share.Load(share.begin, next);
  WaitForLaunchBefore();
  LetNextLaunchBegin();

  const auto* x = static_cast<const BFloat16*>(product.x);
  float sums[kRowTiles][4] = {};
// Twice the weights would take more registers than a thread has.
#pragma unroll 1
  for (int64_t step = share.begin; step < share.end; step += kAhead * kStep) {
    Weights weights[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) weights[i] = next[i];
    share.Load(step + kAhead * kStep, next);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t at = step + i * kStep + share.offset;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const int64_t row = r * kRowTile + lane / 4;
        MultiplyTile(weights[i].upper,
                     weights[i].lower,
                     LoadIf(row < product.rows && at < share.end,
                            x + row * product.x_stride + at),
                     sums[r]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = r * kRowTile + lane % 4 * 2 + i % 2;
      slices[slice][row][tile * kTile + lane / 4 + i / 2 * 8] = sums[r][i];
    }
  }
  __syncthreads();
  AddSlices(slices, product, first_col, kCols);
}

template <int kTiles, int kSlices>
int Launch(const CudaProduct& product, void* stream) {
  const auto launch = [&]<auto kKernel>() {
    return LaunchOn<kKernel>(stream,
                             Begin::kEarly,
                             NumBlocks(product.cols, kTiles * kTile),
                             kTiles * kSlices * kWarp,
                             product);
  };
  if (product.rows <= kRowTile) {
    return launch.template operator()<&SkinnyProduct<1, kTiles, kSlices>>();
  }
  if (product.rows <= 2 * kRowTile) {
    return launch.template operator()<&SkinnyProduct<2, kTiles, kSlices>>();
  }
  return launch.template operator()<&SkinnyProduct<4, kTiles, kSlices>>();
}

}  // namespace

// The fewer columns there are, the more slices keep enough of the weights under
// way: a GPU of 3 TB/s and 0.7 us has 2.1 MB under way, a warp here 4 KiB.
extern "C" int DapdCudaSkinnyProduct(const CudaProduct* product, void* stream) {
  if (product->cols >= 5120) return Launch<4, 2>(*product, stream);
  if (product->cols >= 1024) return Launch<2, 8>(*product, stream);
  return Launch<1, 16>(*product, stream);
}

}  // namespace dapd
