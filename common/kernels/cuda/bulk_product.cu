// Two warp groups multiply 128 columns of y (rows of w) with all rows of x. In
// each step they take 64 numbers of the inner size from a place of a ring,
// which one thread fills again after the block's barrier. There are always 32
// rows: the copy engine brings zeros for the missing ones, so each row is the
// same sequence of instructions whatever its neighbours are. The blocks of a
// cluster take slices of the inner size, whose sums are added in order. So a
// sum depends on the inner size and on the number of slices, which follows from
// the number of columns.

#include <cstddef>
#include <cstdint>

#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/warpgroup_product.cuh"

namespace dapd {
namespace {

constexpr int kBlockCols = static_cast<int>(kBulkTile);
constexpr int kBlockRows = static_cast<int>(kMaxSkinnyRows);
static_assert(kBlockRows == kWarpgroupCols);
constexpr int kBulkThreads = kBlockCols / kWarpgroupRows * kWarpgroup;
constexpr int kPlaces = 4;  // steps whose numbers are under way

struct Place {
  Box<kBlockCols> weights;
  Box<kBlockRows> rows;
};

// A block's shared memory. A multiprocessor has room for two blocks
// (kSharedCarveout), so the padding behind the counts is not asked for.
struct Ring {
  Place place[kPlaces];
  MessageCount arrived[kPlaces];
};
constexpr size_t kRingBytes =
    sizeof(Place[kPlaces]) + sizeof(MessageCount[kPlaces]);

// The block's sums take the memory of the ring. A row has four floats more, so
// that the lanes of a warp write to different banks.
using BlockSums = float[kBlockRows][kBlockCols + 4];
static_assert(sizeof(BlockSums) <= sizeof(Place[kPlaces]));

struct BulkArgs {
  BoxedMatrix weights;
  BoxedMatrix rows;
  CudaProduct product;
};

#ifdef DAPD_HAS_WARPGROUPS

// The steps of a block, in order. One thread calls all functions but num_steps
// and Wait.
class Feed {
 public:
  __device__ Feed(const BulkArgs& args, int slice, int num_slices, Ring& ring)
      : args_(args), ring_(ring) {
    const auto inner = static_cast<int>(args.product.inner);
    const int steps = (inner + kBoxCols - 1) / kBoxCols;
    const int length = (steps + num_slices - 1) / num_slices;
    begin_ = min(steps, slice * length);
    num_steps_ = min(steps, begin_ + length) - begin_;
  }

  __device__ int num_steps() const { return num_steps_; }

  // Begins to copy the first weights.
  __device__ void Open(int first_col) {
    first_col_ = first_col;
    for (MessageCount& arrived : ring_.arrived) InitCount(&arrived);
    ShowCountsToCopies();
    while (weights_ < min(kPlaces, num_steps_)) CopyWeights();
  }

  // Begins to copy x for `step` and the steps behind it, if it is not under
  // way. Waits for the launch in front if that launch may write them.
  __device__ void BringRows(int step) {
    CopyEarlyRows();
    if (rows_ > step) return;
    Wait();
    while (rows_ < weights_) CopyRows();
  }

  // Fills the place of a step that all threads have multiplied.
  __device__ void Refill() {
    if (weights_ < num_steps_) CopyWeights();
  }

  // Every thread must wait at some time.
  __device__ void Wait() {
    if (has_waited_) return;
    WaitForLaunchBefore();
    LetNextLaunchBegin();
    has_waited_ = true;
  }

 private:
  __device__ int ColOf(int step) const { return (begin_ + step) * kBoxCols; }

  __device__ void CopyWeights() {
    const int at = weights_ % kPlaces;
    ExpectBytes(&ring_.arrived[at], static_cast<int>(sizeof(Place)));
    CopyBox(args_.weights,
            first_col_,
            ColOf(weights_),
            &ring_.place[at].weights,
            &ring_.arrived[at]);
    ++weights_;
  }

  __device__ void CopyRows() {
    const int at = rows_ % kPlaces;
    CopyBox(
        args_.rows, 0, ColOf(rows_), &ring_.place[at].rows, &ring_.arrived[at]);
    ++rows_;
  }

  __device__ void CopyEarlyRows() {
    const auto inner = static_cast<int>(args_.product.inner);
    while (rows_ < weights_ &&
           (has_waited_ || min(ColOf(rows_) + kBoxCols, inner) <=
                               static_cast<int>(args_.product.early))) {
      CopyRows();
    }
  }

  const BulkArgs& args_;
  Ring& ring_;
  int begin_;
  int num_steps_;
  int first_col_ = 0;
  int weights_ = 0;  // steps whose weights are under way or there
  int rows_ = 0;     // steps whose rows are
  bool has_waited_ = false;
};

// Adds the slices of every row that this block writes in order and rounds once:
// the blocks of the cluster take turns with the rows.
__device__ inline void AddBlocks(const CudaProduct& product,
                                 const BlockSums& own,
                                 int first_col,
                                 int rank,
                                 int num_slices) {
  const auto rows = static_cast<int>(product.rows);
  const int own_rows = (rows - rank + num_slices - 1) / num_slices;
  for (int i = static_cast<int>(threadIdx.x); i < own_rows * kBlockCols;
       i += kBulkThreads) {
    const int row = i / kBlockCols * num_slices + rank;
    const int col = i % kBlockCols;
    if (first_col + col >= product.cols) continue;
    float sum = 0.0F;
    for (int slice = 0; slice < num_slices; ++slice) {
      sum += *static_cast<const float*>(__cluster_map_shared_rank(
          const_cast<float*>(&own[row][col]), static_cast<unsigned>(slice)));
    }
    const int64_t at = row * product.y_stride + first_col + col;
    if (product.float_result) {
      static_cast<float*>(product.y)[at] = sum;
    } else {
      static_cast<BFloat16*>(product.y)[at] = FromFloat<BFloat16>(sum);
    }
  }
}

#endif  // DAPD_HAS_WARPGROUPS

__global__ void __launch_bounds__(kBulkThreads, 2)
    BulkProduct(const __grid_constant__ BulkArgs args) {
#ifdef DAPD_HAS_WARPGROUPS
  extern __shared__ Ring ring[];
  const auto thread = static_cast<int>(threadIdx.x);
  const auto rank = static_cast<int>(__clusterRelativeBlockRank());
  const auto num_slices = static_cast<int>(__clusterSizeInBlocks());
  const int first_col = static_cast<int>(blockIdx.x) / num_slices * kBlockCols;
  Feed feed(args, rank, num_slices, *ring);
  if (thread == 0) feed.Open(first_col);
  __syncthreads();
  const int group = thread / kWarpgroup * kWarpgroupRows;
  float sums[16] = {};
  for (int step = 0; step < feed.num_steps(); ++step) {
    const int at = step % kPlaces;
    if (thread == 0) feed.BringRows(step);
    __syncwarp();
    WaitForBytes(&ring->arrived[at], step / kPlaces % 2);
    MultiplyBoxes(ring->place[at].weights, group, ring->place[at].rows, sums);
    __syncthreads();
    if (thread == 0) feed.Refill();
  }
  feed.Wait();

  auto& own = *reinterpret_cast<BlockSums*>(ring->place);
  const int lane = thread % kWarp;
  const int col = group + thread % kWarpgroup / kWarp * 16 + lane / 4;
#pragma unroll
  for (int s = 0; s < 16; ++s) {
    own[s / 4 * 8 + lane % 4 * 2 + s % 2][col + s / 2 % 2 * 8] = sums[s];
  }
  // No block may read the sums of another before they are there, or end before
  // they are read.
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  AddBlocks(args.product, own, first_col, rank, num_slices);
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
#endif
}

}  // namespace

extern "C" int DapdCudaHasBulkProducts() {
  return DeviceAttribute(cudaDevAttrComputeCapabilityMajor).value_or(0) == 9
             ? 1
             : 0;
}

extern "C" int DapdCudaBulkProduct(const CudaProduct* product, void* stream) {
  BulkArgs args;
  args.product = *product;
  for (const cudaError_t error : {DescribeMatrix(product->w,
                                                 product->cols,
                                                 product->inner,
                                                 product->w_stride,
                                                 kBlockCols,
                                                 &args.weights),
                                  DescribeMatrix(product->x,
                                                 product->rows,
                                                 product->inner,
                                                 product->x_stride,
                                                 kBlockRows,
                                                 &args.rows)}) {
    if (error != cudaSuccess) return Answer(error);
  }
  const int64_t slices = BulkSlices(product->cols);
  return LaunchOn<&BulkProduct>(
      stream,
      Begin::kEarly,
      NumBlocks(product->cols, kBulkTile) * static_cast<unsigned>(slices),
      kBulkThreads,
      args,
      kRingBytes,
      static_cast<unsigned>(slices));
}

}  // namespace dapd
