#include "common/kernels/cuda/training_launch.cuh"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

// Vectors of a row that a thread holds.
constexpr int kHeld = kCudaMaxNormSize / (kRowThreads * kRowVector);

struct Sums {
  float first = 0.0F;
  float second = 0.0F;
};

// Over the block, in every thread; its warps are added in order. Called once a
// launch. `by_warp` [kRowWarps] is shared.
__device__ Sums BlockSums(Sums sums, Sums* by_warp) {
  sums = {ButterflySum<kWarp>(sums.first), ButterflySum<kWarp>(sums.second)};
  if (threadIdx.x % kWarp == 0) by_warp[threadIdx.x / kWarp] = sums;
  __syncthreads();
  Sums total;
  for (int warp = 0; warp < kRowWarps; ++warp) {
    total.first += by_warp[warp].first;
    total.second += by_warp[warp].second;
  }
  return total;
}

__device__ int64_t VectorOf(int held) {
  return (static_cast<int64_t>(held) * kRowThreads + threadIdx.x) * kRowVector;
}

// A block a row.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void NormRowsKernel(
    NormRowsArgs args) {
  __shared__ Sums by_warp[kRowWarps];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.size;
  const T* delta = static_cast<const T*>(args.delta);
  Vector8<T> held[kHeld];
  Sums sums;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int64_t i = VectorOf(j);
    if (i >= args.size) continue;
    held[j] = Load8(x + i);
    if (delta != nullptr) {
      const Vector8<T> added = Load8(delta + row * args.size + i);
      for (int k = 0; k < kRowVector; ++k) {
        held[j].value[k] =
            AddResidual(held[j].value[k], added.value[k], /*bias=*/0.0F);
      }
      Store8(static_cast<T*>(args.sum) + row * args.size + i, held[j]);
    }
    for (int k = 0; k < kRowVector; ++k) {
      const float value = ToFloat(held[j].value[k]);
      sums.first = fmaf(value, value, sums.first);
    }
  }
  const float scale =
      NormScale(BlockSums(sums, by_warp).first, args.size, args.eps);
  const T* weight = static_cast<const T*>(args.weight);
  T* y = static_cast<T*>(args.y) + row * args.y_stride;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int64_t i = VectorOf(j);
    if (i >= args.size) continue;
    const Vector8<T> weights = Load8(weight + i);
    for (int k = 0; k < kRowVector; ++k) {
      held[j].value[k] =
          Normalized(ToFloat(held[j].value[k]), scale, weights.value[k]);
    }
    Store8(y + i, held[j]);
  }
}

// A block a row.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void NormRowsBackwardKernel(
    NormRowsBackwardArgs args) {
  __shared__ Sums by_warp[kRowWarps];
  const int64_t row = blockIdx.x;
  const T* grad = static_cast<const T*>(args.grad) + row * args.size;
  const T* x = static_cast<const T*>(args.x) + row * args.size;
  const T* weight = static_cast<const T*>(args.weight);
  T* grad_x = static_cast<T*>(args.grad_x) + row * args.size;
  Vector8<T> grads[kHeld];
  Vector8<T> values[kHeld];
  Sums sums;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int64_t i = VectorOf(j);
    if (i >= args.size) continue;
    grads[j] = Load8(grad + i);
    values[j] = Load8(x + i);
    const Vector8<T> weights = Load8(weight + i);
    for (int k = 0; k < kRowVector; ++k) {
      const float value = ToFloat(values[j].value[k]);
      const float g = ToFloat(grads[j].value[k]) * ToFloat(weights.value[k]);
      sums.first = fmaf(value, value, sums.first);
      sums.second = fmaf(g, value, sums.second);
    }
  }
  sums = BlockSums(sums, by_warp);
  const float r = NormScale(sums.first, args.size, args.eps);
  const float mean = NormMean(sums.second, r, args.size);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int64_t i = VectorOf(j);
    if (i >= args.size) continue;
    const Vector8<T> weights = Load8(weight + i);
    Vector8<T> to = Load8(grad_x + i);
    for (int k = 0; k < kRowVector; ++k) {
      const float g = ToFloat(grads[j].value[k]) * ToFloat(weights.value[k]);
      to.value[k] =
          FromFloat<T>(ToFloat(to.value[k]) +
                       NormGradient(g, ToFloat(values[j].value[k]), r, mean));
    }
    Store8(grad_x + i, to);
  }
}

}  // namespace

extern "C" int DapdCudaNormRows(const NormRowsArgs* args,
                                CudaNumber number,
                                void* stream) {
  return LaunchRows<NormRowsKernel<float>, NormRowsKernel<BFloat16>>(
      *args, args->rows, number, stream);
}

extern "C" int DapdCudaNormRowsBackward(const NormRowsBackwardArgs* args,
                                        CudaNumber number,
                                        void* stream) {
  return LaunchRows<NormRowsBackwardKernel<float>,
                    NormRowsBackwardKernel<BFloat16>>(
      *args, args->rows, number, stream);
}

}  // namespace dapd
