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

  __device__ static int64_t At(int j) {
    return 2 * (threadIdx.x % kWarp + static_cast<int64_t>(j) * kWarp);
  }

  __device__ void Load(const T* head, int64_t half) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t i = At(j);
      if (i >= half) continue;
      const auto& a = *reinterpret_cast<const Vector2<T>*>(head + i);
      const auto& b = *reinterpret_cast<const Vector2<T>*>(head + half + i);
      for (int k = 0; k < 2; ++k) {
        first[j][k] = ToFloat(a.value[k]);
        second[j][k] = ToFloat(b.value[k]);
      }
    }
  }

  __device__ void Store(T* head, int64_t half) const {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t i = At(j);
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

// Which head a warp computes, counted over all rows; below 0: none.
__device__ int64_t HeadOfWarp(const RotateRowsArgs& args) {
  const int64_t head =
      static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kWarp;
  return head < args.rows * args.heads ? head : -1;
}

// What a head is rotated by, from its row's angles, and normalised with (null:
// not at all).
template <typename T>
struct HeadTables {
  const T* cosine;
  const T* sine;
  const T* norm;
};

template <typename T>
__device__ HeadTables<T> TablesOf(const RotateRowsArgs& args, int64_t head) {
  const int64_t angle = head / args.heads * args.head_dim;
  return {static_cast<const T*>(args.cosine) + angle,
          static_cast<const T*>(args.sine) + angle,
          static_cast<const T*>(args.norm)};
}

// A warp a head.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void RotateRowsKernel(
    RotateRowsArgs args) {
  const int64_t head = HeadOfWarp(args);
  if (head < 0) return;
  const int64_t half = args.head_dim / 2;
  const auto [cosine, sine, norm] = TablesOf<T>(args, head);
  HeadPairs<T> pairs;
  pairs.Load(static_cast<const T*>(args.x) + head * args.head_dim, half);
  float scale = 1.0F;
  if (norm != nullptr) {
    scale = NormScale(pairs.Dot(pairs), args.head_dim, args.eps);
  }
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    for (int k = 0; k < 2; ++k) {
      const int64_t i = pairs.At(j) + k;
      if (i >= half) continue;
      float& first = pairs.first[j][k];
      float& second = pairs.second[j][k];
      if (norm != nullptr) {
        first = ToFloat(Normalized(first, scale, norm[i]));
        second = ToFloat(Normalized(second, scale, norm[i + half]));
      }
      const RotatedPair turned = Rotate(first, second, cosine[i], sine[i]);
      first = turned.first;
      second = turned.second;
    }
  }
  pairs.Store(static_cast<T*>(args.y) + head * args.head_dim, half);
}

// A warp a head.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void RotateRowsBackwardKernel(
    RotateRowsArgs args) {
  const int64_t head = HeadOfWarp(args);
  if (head < 0) return;
  const int64_t half = args.head_dim / 2;
  const auto [cosine, sine, norm] = TablesOf<T>(args, head);
  T* grad = static_cast<T*>(args.y) + head * args.head_dim;
  HeadPairs<T> pulls;
  pulls.Load(grad, half);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    for (int k = 0; k < 2; ++k) {
      const int64_t i = pulls.At(j) + k;
      if (i >= half) continue;
      const PairGradient turned = RotateBack(pulls.first[j][k],
                                             pulls.second[j][k],
                                             ToFloat(cosine[i]),
                                             ToFloat(sine[i]));
      const bool has_norm = norm != nullptr;
      pulls.first[j][k] = turned.first * (has_norm ? ToFloat(norm[i]) : 1.0F);
      pulls.second[j][k] =
          turned.second * (has_norm ? ToFloat(norm[i + half]) : 1.0F);
    }
  }
  if (norm != nullptr) {
    HeadPairs<T> x;
    x.Load(static_cast<const T*>(args.x) + head * args.head_dim, half);
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
  pulls.Store(grad, half);
}

int64_t BlocksFor(const RotateRowsArgs& args) {
  return NumBlocks(args.rows * args.heads, kRowWarps);
}

}  // namespace

extern "C" int DapdCudaRotateRows(const RotateRowsArgs* args,
                                  CudaNumber number,
                                  void* stream) {
  return LaunchRows<RotateRowsKernel<float>, RotateRowsKernel<BFloat16>>(
      *args, BlocksFor(*args), number, stream);
}

extern "C" int DapdCudaRotateRowsBackward(const RotateRowsArgs* args,
                                          CudaNumber number,
                                          void* stream) {
  return LaunchRows<RotateRowsBackwardKernel<float>,
                    RotateRowsBackwardKernel<BFloat16>>(
      *args, BlocksFor(*args), number, stream);
}

}  // namespace dapd
