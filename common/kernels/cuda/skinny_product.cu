// A warp multiplies 16 columns of y (rows of w) with a slice of the inner size
// by tensor cores. Each lane loads what it multiplies itself, 16 bytes of a row
// at a time. Weights are copied asynchronously, three steps ahead, into places
// of shared memory that no other lane reads. They are not loaded into registers
// because a warp has only six counters for such loads, and of several loads
// that share a counter it cannot wait for the first alone. x, which all blocks
// read, comes from the caches, one step ahead. The warps of a block are
// arranged over columns, which share x, and over slices, whose sums are added
// in order. So a sum depends on the inner size and on the number of slices,
// which follows from the number of columns and the device's multiprocessors
// (PlanSkinnyProduct).

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/cuda/tensor_core.cuh"

namespace dapd {
namespace {

constexpr int kRowTile = 8;  // rows of half an instruction
constexpr int kPart = 32;    // numbers of a row that four lanes load at a time
constexpr int kParts = 2;
constexpr int kStep = kParts * kPart;  // numbers that a warp multiplies at a
                                       // time
constexpr int kAhead = 3;              // steps of weights whose copies are
                                       // under way

// Lane l holds the weights of columns l / 4 and l / 4 + 8 of a tile of y.
struct Weights {
  BFloat16Pairs left[kWarp];
  BFloat16Pairs right[kWarp];
};

// Holds the weights of a step.
struct Stage {
  Weights part[kParts];
};

// Lane l holds rows l / 4 of the tiles of x in a step.
template <int kRowTiles>
struct Rows {
  BFloat16Pairs part[kParts][kRowTiles];
};

// The size of a block's shared memory.
template <int kWarps>
constexpr size_t kSharedBytes = kWarps* kAhead * sizeof(Stage);

// Hides from the compiler how a pointer was computed. Otherwise it would
// compute the pointer again in the loop, with 64-bit products, to save
// registers that it does not need.
__device__ inline void Keep([[maybe_unused]] const BFloat16*& pointer) {
#ifdef __CUDACC__
  asm volatile("" : "+l"(pointer));
#endif
}

// The operands of this lane. Behind the last row or column it multiplies the
// last row or column again; those sums are not used.
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

  // Returns where the lane's numbers begin in a part of a step.
  __device__ int At(int step, int part) const {
    return step + part * kPart + lane % 4 * 8;
  }

  // Begins to copy a step's weights, but none behind the slice's end.
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

// Loads a warp's rows of x. It waits for the launch in front before it loads
// columns that this launch may write.
template <int kRowTiles>
class RowLoader {
 public:
  __device__ RowLoader(const Share<kRowTiles>& share, int early)
      : share_(share), early_(early) {}

  __device__ void Load(int step, Rows<kRowTiles>& to) {
    const bool is_late = min(step + kStep, share_.end) > early_;
    if (is_late) Wait();
    if (is_late && early_ > 0) {
      // The L1 cache may hold these cache lines from before the wait, because
      // other columns of them were read then; so this load goes past it.
      share_.template LoadRows<LoadedPast::kL1>(step, to);
    } else {
      share_.template LoadRows<LoadedPast::kNothing>(step, to);
    }
  }
  // Every thread must call this at some time.
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

// The sums of the 16 rows of an instruction for the two columns of y whose
// weights the lane has.
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

// Writes y for a block's columns. All threads of the block add the slices' sums
// in order and round once.
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
  constexpr int kCols = kTiles * kSkinnyCols;
  constexpr int kRows = kRowTiles * kRowTile;
  extern __shared__ Stage stages[];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int tile = warp % kTiles;
  const int slice = warp / kTiles;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kCols;
  const Share<kRowTiles> share(
      product, first_col + tile * kSkinnyCols, slice, kSlices);
  Stage* const own = stages + warp * kAhead;
  const auto early = static_cast<int>(product.early);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    share.CopyWeights(share.begin + i * kStep, own[i]);
  }
  // The L1 cache may hold parts of x that are older than the launch that wrote
  // x, which has ended (WaitForLaunchBefore). The weights do not pass through
  // that cache, so they need not wait for this fence.
  if (kMayBeginEarly && early > 0) __threadfence();
  RowLoader<kRowTiles> loader(share, early);
  Rows<kRowTiles> rows[2];  // of this step and of the next, alternately
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

  // The slices' sums take the memory of the weights. A row has eight floats
  // more, so that the lanes of a warp write to different banks.
  using Slice = float[kRows][kCols + 8];
  static_assert(sizeof(Slice) * kSlices <= kSharedBytes<kTiles * kSlices>);
  auto* slices = reinterpret_cast<Slice*>(stages);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    float* row = &slices[slice][r * kRowTile + lane / 4]
                        [tile * kSkinnyCols + lane % 4 * 2];
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
                             NumBlocks(product.cols, kTiles * kSkinnyCols),
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

extern "C" int DapdCudaSkinnyProduct(const CudaProduct* product, void* stream) {
  const SkinnyPlan plan = PlanSkinnyProduct(
      product->cols,
      DeviceAttribute(cudaDevAttrMultiProcessorCount).value_or(1));
  if (plan == SkinnyPlan{1, 16}) return Launch<1, 16>(*product, stream);
  if (plan == SkinnyPlan{2, 8}) return Launch<2, 8>(*product, stream);
  if (plan == SkinnyPlan{4, 4}) return Launch<4, 4>(*product, stream);
  if (plan == SkinnyPlan{8, 2}) return Launch<8, 2>(*product, stream);
  return Launch<8, 1>(*product, stream);
}

}  // namespace dapd
