#include <limits>

#include "common/kernels/cuda/training_launch.cuh"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

// Pairs of a head that a lane holds, two by two.
constexpr int kPairs = kMaxHeadDim / 2 / (2 * kWarp);

// The pairs (i, i + head_dim / 2) of a head in a warp's registers: lane l has i
// = 2 l and 2 l + 1, and those 64 further.
template <typename T>
struct HeadPairs {
  float first[kPairs][2] = {};
  float second[kPairs][2] = {};

  __device__ static int At(int j) {
    return 2 * (static_cast<int>(threadIdx.x) % kWarp + j * kWarp);
  }

  __device__ void Load(const T* head, int half) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = At(j);
      if (i >= half) continue;
      const Vector2<T> a = Load2(head + i);
      const Vector2<T> b = Load2(head + half + i);
      for (int k = 0; k < 2; ++k) {
        first[j][k] = ToFloat(a.value[k]);
        second[j][k] = ToFloat(b.value[k]);
      }
    }
  }

  __device__ void Store(T* head, int half) const {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = At(j);
      if (i >= half) continue;
      Vector2<T> a;
      Vector2<T> b;
      for (int k = 0; k < 2; ++k) {
        a.value[k] = FromFloat<T>(first[j][k]);
        b.value[k] = FromFloat<T>(second[j][k]);
      }
      *reinterpret_cast<Vector2<T>*>(head + i) = a;
      *reinterpret_cast<Vector2<T>*>(head + half + i) = b;
    }
  }

  // The sum over the head of the products with another's entries; what is
  // beside the head is 0.
  __device__ float Dot(const HeadPairs& other) const {
    float sum = 0.0F;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      for (int k = 0; k < 2; ++k) {
        sum = fmaf(first[j][k], other.first[j][k], sum);
        sum = fmaf(second[j][k], other.second[j][k], sum);
      }
    }
    return ButterflySum<kWarp>(sum);
  }
};

// The head that a warp computes.
template <typename T>
struct HeadOfWarp {
  bool is_there;
  int64_t x;  // its first number, counted over all rows of x
  int64_t y;  // the same of y
  int half;   // pairs
  // What it is rotated by, its row's, and normalised with (null: not at all).
  const T* cosine;
  const T* sine;
  const T* norm;

  __device__ explicit HeadOfWarp(const RotateRowsArgs& args) {
    const unsigned head = blockIdx.x * kRowWarps + threadIdx.x / kWarp;
    const auto heads = static_cast<unsigned>(args.heads);
    const unsigned row = head / heads;
    is_there = row < args.rows;
    x = row * args.x_stride + (head - row * heads) * args.head_dim;
    y = head * args.head_dim;
    half = static_cast<int>(args.head_dim) / 2;
    cosine = static_cast<const T*>(args.cosine) + row * args.head_dim;
    sine = static_cast<const T*>(args.sine) + row * args.head_dim;
    norm = static_cast<const T*>(args.norm);
  }
};

// A warp a head.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void RotateRowsKernel(
    RotateRowsArgs args) {
  const HeadOfWarp<T> head(args);
  if (!head.is_there) return;
  HeadPairs<T> pairs;
  pairs.Load(static_cast<const T*>(args.x) + head.x, head.half);
  float scale = 1.0F;
  if (head.norm != nullptr) {
    scale = NormScale(pairs.Dot(pairs), args.head_dim, args.eps);
  }
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = pairs.At(j);
    if (i >= head.half) continue;
    const Vector2<T> cosine = Load2(head.cosine + i);
    const Vector2<T> sine = Load2(head.sine + i);
    float(&first)[2] = pairs.first[j];
    float(&second)[2] = pairs.second[j];
    if (head.norm != nullptr) {
      const Vector2<T> a = Load2(head.norm + i);
      const Vector2<T> b = Load2(head.norm + head.half + i);
      for (int k = 0; k < 2; ++k) {
        first[k] = ToFloat(Normalized(first[k], scale, a.value[k]));
        second[k] = ToFloat(Normalized(second[k], scale, b.value[k]));
      }
    }
    for (int k = 0; k < 2; ++k) {
      const RotatedPair turned =
          Rotate(first[k], second[k], cosine.value[k], sine.value[k]);
      first[k] = turned.first;
      second[k] = turned.second;
    }
  }
  pairs.Store(static_cast<T*>(args.y) + head.y, head.half);
}

// A warp a head.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void RotateRowsBackwardKernel(
    RotateRowsArgs args) {
  const HeadOfWarp<T> head(args);
  if (!head.is_there) return;
  T* const grad = static_cast<T*>(args.y) + head.y;
  HeadPairs<T> pulls;
  pulls.Load(grad, head.half);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = pulls.At(j);
    if (i >= head.half) continue;
    const Vector2<T> cosine = Load2(head.cosine + i);
    const Vector2<T> sine = Load2(head.sine + i);
    float(&first)[2] = pulls.first[j];
    float(&second)[2] = pulls.second[j];
    for (int k = 0; k < 2; ++k) {
      const PairGradient turned = RotateBack(first[k],
                                             second[k],
                                             ToFloat(cosine.value[k]),
                                             ToFloat(sine.value[k]));
      first[k] = turned.first;
      second[k] = turned.second;
    }
    if (head.norm != nullptr) {
      const Vector2<T> a = Load2(head.norm + i);
      const Vector2<T> b = Load2(head.norm + head.half + i);
      for (int k = 0; k < 2; ++k) {
        first[k] *= ToFloat(a.value[k]);
        second[k] *= ToFloat(b.value[k]);
      }
    }
  }
  if (head.norm != nullptr) {
    HeadPairs<T> x;
    x.Load(static_cast<const T*>(args.x) + head.x, head.half);
    const float r = NormScale(x.Dot(x), args.head_dim, args.eps);
    const float mean = NormMean(x.Dot(pulls), r, args.head_dim);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      for (int k = 0; k < 2; ++k) {
        pulls.first[j][k] =
            NormGradient(pulls.first[j][k], x.first[j][k], r, mean);
        pulls.second[j][k] =
            NormGradient(pulls.second[j][k], x.second[j][k], r, mean);
      }
    }
  }
  pulls.Store(grad, head.half);
}

template <auto kFloatKernel, auto kBFloat16Kernel>
int Launch(const RotateRowsArgs& args, CudaNumber number, void* stream) {
  // Heads are counted in 32 bits: a division of more is as long as the rest.
  const int64_t heads = args.rows * args.heads;
  if (heads > std::numeric_limits<int32_t>::max()) {
    return static_cast<int>(cudaErrorInvalidValue);
  }
  return LaunchRows<kFloatKernel, kBFloat16Kernel>(
      args, NumBlocks(heads, kRowWarps), number, stream);
}

}  // namespace

extern "C" int DapdCudaRotateRows(const RotateRowsArgs* args,
                                  CudaNumber number,
                                  void* stream) {
  return Launch<RotateRowsKernel<float>, RotateRowsKernel<BFloat16>>(
      *args, number, stream);
}

extern "C" int DapdCudaRotateRowsBackward(const RotateRowsArgs* args,
                                          CudaNumber number,
                                          void* stream) {
  return Launch<RotateRowsBackwardKernel<float>,
                RotateRowsBackwardKernel<BFloat16>>(*args, number, stream);
}

}  // namespace dapd
