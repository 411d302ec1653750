// A warp multiplies 16 columns of y, rows of w, with a slice of their length by
// tensor cores. Lanes load what they multiply themselves, 16 bytes of a row at
// a time. Weights come as asynchronous copies into places of shared memory that
// no other lane reads, three steps ahead: a warp has six counters for loads
// into registers, and of those that share one it cannot wait for the first
// alone. x, which all blocks read, comes out of the caches, one step ahead. The
// warps of a block stand side by side over columns, which share x, and over
// slices, whose sums are added in order. So a sum depends on the inner size and
// on how many slices the number of columns asks for.

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/cuda/tensor_core.cuh"

namespace dapd {
namespace {

constexpr int kTile = 16;    // columns of y of a warp
constexpr int kRowTile = 8;  // rows of half an instruction
constexpr int kPart = 32;    // numbers of a row that four lanes load at a time
constexpr int kParts = 2;
constexpr int kStep = kParts * kPart;  // that a warp multiplies at a time
constexpr int kAhead = 3;              // steps of weights under way

// Of columns l / 4 and l / 4 + 8 of a tile of y, at lane l.
struct Weights {
  BFloat16Pairs left[kWarp];
  BFloat16Pairs right[kWarp];
};

// The weights of a step.
struct Stage {
  Weights part[kParts];
};

// Rows l / 4 of the tiles of x in a step, in lane l.
template <int kRowTiles>
struct Rows {
  BFloat16Pairs part[kParts][kRowTiles];
};

// A block's shared memory.
template <int kWarps>
constexpr size_t kSharedBytes = kWarps* kAhead * sizeof(Stage);

// Hides how a pointer was made. The compiler would make it again in the loop,
// by 64-bit products, to spare registers that it does not need.
__device__ inline void Keep([[maybe_unused]] const BFloat16*& pointer) {
#ifdef __CUDACC__
  asm volatile("" : "+l"(pointer));
#endif
}

// What this lane multiplies. Behind the last row or column it is the last one
// again, whose sums nobody reads.
template <int kRowTiles>
struct Share {
  const BFloat16* left;  // rows of w
  const BFloat16* right;
  const BFloat16* rows[kRowTiles];  // of x
  int begin;                        // of the warp's slice
  int end;
  int lane;

  __device__ Share(const CudaProduct& product,
                   int64_t first_col,
                   int slice,
                   int num_slices)
      : lane(threadIdx.x % kWarp) {
    const auto row_of_w = [&](int64_t col) {
      return static_cast<const BFloat16*>(product.w) +
             min(col, product.cols - 1) * product.w_stride;
    };
    left = row_of_w(first_col + lane / 4);
    right = row_of_w(first_col + lane / 4 + 8);
    Keep(left);
    Keep(right);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int64_t row = r * kRowTile + lane / 4;
      rows[r] = static_cast<const BFloat16*>(product.x) +
                min(row, product.rows - 1) * product.x_stride;
      Keep(rows[r]);
    }
    const auto inner = static_cast<int>(product.inner);
    const int steps = (inner + kStep - 1) / kStep;
    const int length = (steps + num_slices - 1) / num_slices * kStep;
    begin = slice * length;
    end = min(inner, begin + length);
  }

  // Of the lane's numbers in a part of a step.
  __device__ int At(int step, int part) const {
    return step + part * kPart + lane % 4 * 8;
  }

  // Begins to copy a step's weights, none behind the slice's end.
  __device__ void CopyWeights(int step, Stage& to) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int at = At(step, part);
      if (at >= end) continue;
      Weights& weights = to.part[part];
      __pipeline_memcpy_async(&weights.left[lane], left + at, 16);
      __pipeline_memcpy_async(&weights.right[lane], right + at, 16);
    }
    __pipeline_commit();
  }

  template <LoadedPast kPast>
  __device__ void LoadRows(int step, Rows<kRowTiles>& to) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int at = At(step, part);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        BFloat16Pairs& row = to.part[part][r];
        row = {};
        LoadIf<kPast>(at < end, rows[r] + at, row);
      }
    }
  }
};

// Loads a warp's rows, and before those that the launch in front may write it
// waits for that one.
template <int kRowTiles>
class RowLoader {
 public:
  __device__ RowLoader(const Share<kRowTiles>& share, int early)
      : share_(share), early_(early) {}

  __device__ void Load(int step, Rows<kRowTiles>& to) {
    const bool is_late = min(step + kStep, share_.end) > early_;
    if (is_late) Wait();
    if (is_late && early_ > 0) {
      // Of their cache lines this launch may have read other columns before.
      share_.template LoadRows<LoadedPast::kL1>(step, to);
    } else {
      share_.template LoadRows<LoadedPast::kNothing>(step, to);
    }
  }
  // Every thread has to, sooner or later.
  __device__ void Wait() {
    if (has_waited_) return;
    WaitForLaunchBefore();
    LetNextLaunchBegin();
    has_waited_ = true;
  }

 private:
  const Share<kRowTiles>& share_;
  const int early_;
  bool has_waited_ = false;
};

// Of the 16 rows of an instruction, by the two columns of y that a lane has
// weights of.
template <int kRowTiles>
struct Sums {
  static constexpr int kInstructions = (kRowTiles + 1) / 2;

  float left[kInstructions][4] = {};
  float right[kInstructions][4] = {};

  __device__ void Add(const Rows<kRowTiles>& rows,
                      int part,
                      const BFloat16Pairs& left_weights,
                      const BFloat16Pairs& right_weights) {
#pragma unroll
    for (int i = 0; i < kInstructions; ++i) {
      const BFloat16Pairs& upper = rows.part[part][2 * i];
      const BFloat16Pairs lower =
          2 * i + 1 < kRowTiles ? rows.part[part][2 * i + 1] : BFloat16Pairs{};
      MultiplyTile(upper, lower, left_weights, left[i]);
      MultiplyTile(upper, lower, right_weights, right[i]);
    }
  }
};

// y of a block's columns, by all its threads: the slices' sums in order,
// rounded once.
template <int kSlices, int kRows, int kPadded>
__device__ inline void AddSlices(const float (*slices)[kRows][kPadded],
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
  extern __shared__ Stage stages[];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int tile = warp % kTiles;
  const int slice = warp / kTiles;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kCols;
  const Share<kRowTiles> share(
      product, first_col + tile * kTile, slice, kSlices);
  Stage* const own = stages + warp * kAhead;
  const auto early = static_cast<int>(product.early);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    share.CopyWeights(share.begin + i * kStep, own[i]);
  }
  // What the L1 cache has of x may be older than the launch that wrote it. The
  // weights do not go through it, so they need not wait for this.
  if (kMayBeginEarly && early > 0) __threadfence();
  RowLoader<kRowTiles> loader(share, early);
  Rows<kRowTiles> rows[2];  // of this step and the next, in turns
  loader.Load(share.begin, rows[0]);
  Sums<kRowTiles> sums;
  int place = 0;
  for (int step = share.begin; step < share.end;) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      if (step >= share.end) break;
      loader.Load(step + kStep, rows[1 - turn]);
      __pipeline_wait_prior(kAhead - 1);
      Stage& stage = own[place];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const bool is_in = share.At(step, part) < share.end;
        const Weights& weights = stage.part[part];
        sums.Add(rows[turn],
                 part,
                 is_in ? weights.left[lane] : BFloat16Pairs{},
                 is_in ? weights.right[lane] : BFloat16Pairs{});
      }
      share.CopyWeights(step + kAhead * kStep, stage);
      place = place + 1 < kAhead ? place + 1 : 0;
      step += kStep;
    }
  }

  loader.Wait();

  // Where the weights were. Eight floats more: the lanes of a warp write to
  // banks of their own.
  using Slice = float[kRows][kCols + 8];
  static_assert(sizeof(Slice) * kSlices <= kSharedBytes<kTiles * kSlices>);
  auto* slices = reinterpret_cast<Slice*>(stages);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    float* row =
        &slices[slice][r * kRowTile + lane / 4][tile * kTile + lane % 4 * 2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      row[i] = sums.left[r / 2][r % 2 * 2 + i];
      row[8 + i] = sums.right[r / 2][r % 2 * 2 + i];
    }
  }
  __syncthreads();
  AddSlices<kSlices>(slices, product, first_col, kCols);
}

template <int kTiles, int kSlices>
int Launch(const CudaProduct& product, void* stream) {
  const auto launch = [&]<auto kKernel>() {
    return LaunchOn<kKernel>(stream,
                             Begin::kEarly,
                             NumBlocks(product.cols, kTiles * kTile),
                             kTiles * kSlices * kWarp,
                             product,
                             kSharedBytes<kTiles * kSlices>);
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
// way: a GPU of 3 TB/s and 0.7 us has 2.1 MB under way, a warp here 6 KiB. And
// all blocks should be on the device at a time, which has room for 16 warps a
// multiprocessor: what is left for a second round has the memory for itself and
// cannot fill it. The limits are an H100's, with 132 of them, on every device,
// so that a product has the same bits on all.
extern "C" int DapdCudaSkinnyProduct(const CudaProduct* product, void* stream) {
  constexpr int64_t kMultiprocessors = 132;
  const auto is_one_round = [&](int tiles) {
    return product->cols <= kMultiprocessors * tiles * kTile;
  };
  if (product->cols < 1024) return Launch<1, 16>(*product, stream);
  if (is_one_round(2)) return Launch<2, 8>(*product, stream);
  if (is_one_round(4)) return Launch<4, 4>(*product, stream);
  if (is_one_round(8)) return Launch<8, 2>(*product, stream);
  return Launch<8, 1>(*product, stream);
}

}  // namespace dapd
