#include "common/kernels/cuda/training_launch.cuh"
#include "common/kernels/cuda/training_vectors.cuh"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

// One block takes a row. It has as many threads as hold the row in kHeld
// vectors each, so that none is idle with Qwen3's sizes. A thread begins all
// its loads before it uses the first loaded value.
constexpr int kHeld = 2;
constexpr int kMaxThreads = kCudaMaxNormSize / (kHeld * kRowVector);
constexpr int kMaxWarps = kMaxThreads / kWarp;

// The part of a row of `size` numbers that a thread holds, with zeros outside
// the row.
template <typename T>
struct RowPart {
  NumberVector<T, kRowVector> vector[kHeld];

  __device__ static int ColumnOf(int held) {
    return static_cast<int>(held * blockDim.x + threadIdx.x) * kRowVector;
  }

  // Loads zeros if the rows are not `wanted`.
  __device__ void Load(const void* rows,
                       int64_t row,
                       int size,
                       bool wanted = true) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = ColumnOf(j);
      LoadIf(wanted && i < size,
             static_cast<const T*>(rows) + row * size + i,
             vector[j]);
    }
  }

  __device__ void StoreIn(T* row, int size) const {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int i = ColumnOf(j);
      StoreIf(i < size, row + i, vector[j]);
    }
  }

  // Calls f with references to every pair and to the pairs at the same place in
  // `others`.
  template <typename F, typename... Parts>
  __device__ void ForPairs(const F& f, const Parts&... others) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
#pragma unroll
      for (int k = 0; k < NumberVector<T, kRowVector>::kPairs; ++k) {
        f(vector[j].pair[k], others.vector[j].pair[k]...);
      }
    }
  }
};

// Returns the sums over the block in every thread. It may be called once per
// launch; `by_warp` is a shared variable.
template <int kSums>
__device__ void SumOverBlock(float (&sums)[kSums],
                             float (&by_warp)[kMaxWarps][kSums]) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums[i] = ButterflySum<kWarp>(sums[i]);
    if (lane == 0) by_warp[threadIdx.x / kWarp][i] = sums[i];
  }
  __syncthreads();
  const unsigned warp = lane % kMaxWarps;
  const bool is_there = warp < blockDim.x / kWarp;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums[i] = ButterflySum<kMaxWarps>(is_there ? by_warp[warp][i] : 0.0F);
  }
}

template <typename T>
__global__ __launch_bounds__(kMaxThreads) void NormRowsKernel(
    NormRowsArgs args) {
  __shared__ float by_warp[kMaxWarps][1];
  const int64_t row = blockIdx.x;
  const auto size = static_cast<int>(args.size);
  const bool has_delta = args.delta != nullptr;
  RowPart<T> x;
  RowPart<T> delta;
  RowPart<T> weight;
  x.Load(args.x, row, size);
  delta.Load(args.delta, row, size, has_delta);
  weight.Load(args.weight, /*row=*/0, size);
  if (has_delta) {
    x.ForPairs([](auto& a, auto b) { a = Sum(a, b); }, delta);
    x.StoreIn(static_cast<T*>(args.sum) + row * size, size);
  }
  float squares[1] = {};
  x.ForPairs([&](auto a) { squares[0] = AddProducts(a, a, squares[0]); });
  SumOverBlock(squares, by_warp);
  const float scale = NormScale(squares[0], args.size, args.eps);
  x.ForPairs([&](auto& a, auto w) { a = NormalizedPair(a, scale, w); }, weight);
  x.StoreIn(static_cast<T*>(args.y) + row * args.y_stride, size);
}

template <typename T>
__global__ __launch_bounds__(kMaxThreads) void NormRowsBackwardKernel(
    NormRowsBackwardArgs args) {
  __shared__ float by_warp[kMaxWarps][2];
  const int64_t row = blockIdx.x;
  const auto size = static_cast<int>(args.size);
  RowPart<T> grad;
  RowPart<T> x;
  RowPart<T> weight;
  RowPart<T> to;
  grad.Load(args.grad, row, size);
  x.Load(args.x, row, size);
  weight.Load(args.weight, /*row=*/0, size);
  to.Load(args.grad_x, row, size);
  float sums[2] = {};
  x.ForPairs(
      [&](auto a, auto g, auto w) {
        sums[0] = AddProducts(a, a, sums[0]);
        sums[1] = fmaf(First(g) * First(w), First(a), sums[1]);
        sums[1] = fmaf(Second(g) * Second(w), Second(a), sums[1]);
      },
      grad,
      weight);
  SumOverBlock(sums, by_warp);
  const float r = NormScale(sums[0], args.size, args.eps);
  const float mean = NormMean(sums[1], r, args.size);
  to.ForPairs(
      [&](auto& sum, auto a, auto g, auto w) {
        sum = RoundedPair<T>(
            First(sum) + NormGradient(First(g) * First(w), First(a), r, mean),
            Second(sum) +
                NormGradient(Second(g) * Second(w), Second(a), r, mean));
      },
      x,
      grad,
      weight);
  to.StoreIn(static_cast<T*>(args.grad_x) + row * size, size);
}

int ThreadsFor(int64_t size) {
  return static_cast<int>(NumBlocks(size, kHeld * kRowVector * kWarp)) * kWarp;
}

}  // namespace

extern "C" int DapdCudaNormRows(const NormRowsArgs* args,
                                CudaNumber number,
                                void* stream) {
  return LaunchRows<NormRowsKernel<float>, NormRowsKernel<BFloat16>>(
      *args, args->rows, number, stream, ThreadsFor(args->size));
}

extern "C" int DapdCudaNormRowsBackward(const NormRowsBackwardArgs* args,
                                        CudaNumber number,
                                        void* stream) {
  return LaunchRows<NormRowsBackwardKernel<float>,
                    NormRowsBackwardKernel<BFloat16>>(
      *args, args->rows, number, stream, ThreadsFor(args->size));
}

}  // namespace dapd
