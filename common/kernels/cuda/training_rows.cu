#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/training_rows.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kVector = 8;
// Vectors of a row that a thread holds.
constexpr int kHeld = kCudaMaxNormSize / (kThreads * kVector);
// Pairs of a head that a lane holds, two by two.
constexpr int kPairs = kMaxHeadDim / 2 / (2 * kWarp);

struct Sums {
  float first = 0.0F;
  float second = 0.0F;
};

// Over the block, in every thread; its warps are added in order. Called once a
// launch. `by_warp` [kWarps] is shared.
__device__ Sums BlockSums(Sums sums, Sums* by_warp) {
  sums = {ButterflySum<kWarp>(sums.first), ButterflySum<kWarp>(sums.second)};
  if (threadIdx.x % kWarp == 0) by_warp[threadIdx.x / kWarp] = sums;
  __syncthreads();
  Sums total;
  for (int warp = 0; warp < kWarps; ++warp) {
    total.first += by_warp[warp].first;
    total.second += by_warp[warp].second;
  }
  return total;
}

__device__ int64_t VectorOf(int held) {
  return (static_cast<int64_t>(held) * kThreads + threadIdx.x) * kVector;
}

// A block a row.
template <typename T>
__global__ __launch_bounds__(kThreads) void NormRowsKernel(NormRowsArgs args) {
  __shared__ Sums by_warp[kWarps];
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
      for (int k = 0; k < kVector; ++k) {
        held[j].value[k] =
            AddResidual(held[j].value[k], added.value[k], /*bias=*/0.0F);
      }
      Store8(static_cast<T*>(args.sum) + row * args.size + i, held[j]);
    }
    for (int k = 0; k < kVector; ++k) {
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
    for (int k = 0; k < kVector; ++k) {
      held[j].value[k] =
          Normalized(ToFloat(held[j].value[k]), scale, weights.value[k]);
    }
    Store8(y + i, held[j]);
  }
}

// A block a row.
template <typename T>
__global__ __launch_bounds__(kThreads) void NormRowsBackwardKernel(
    NormRowsBackwardArgs args) {
  __shared__ Sums by_warp[kWarps];
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
    for (int k = 0; k < kVector; ++k) {
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
    for (int k = 0; k < kVector; ++k) {
      const float g = ToFloat(grads[j].value[k]) * ToFloat(weights.value[k]);
      to.value[k] =
          FromFloat<T>(ToFloat(to.value[k]) +
                       NormGradient(g, ToFloat(values[j].value[k]), r, mean));
    }
    Store8(grad_x + i, to);
  }
}

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
      static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  return head < args.rows * args.heads ? head : -1;
}

// A warp a head.
template <typename T>
__global__ __launch_bounds__(kThreads) void RotateRowsKernel(
    RotateRowsArgs args) {
  const int64_t head = HeadOfWarp(args);
  if (head < 0) return;
  const int64_t half = args.head_dim / 2;
  const int64_t angle = head / args.heads * args.head_dim;
  const T* cosine = static_cast<const T*>(args.cosine) + angle;
  const T* sine = static_cast<const T*>(args.sine) + angle;
  const T* norm = static_cast<const T*>(args.norm);
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
__global__ __launch_bounds__(kThreads) void RotateRowsBackwardKernel(
    RotateRowsArgs args) {
  const int64_t head = HeadOfWarp(args);
  if (head < 0) return;
  const int64_t half = args.head_dim / 2;
  const int64_t angle = head / args.heads * args.head_dim;
  const T* cosine = static_cast<const T*>(args.cosine) + angle;
  const T* sine = static_cast<const T*>(args.sine) + angle;
  const T* norm = static_cast<const T*>(args.norm);
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

// Which vector of a row a thread computes; false: none.
struct Place {
  int64_t row;
  int64_t column;
};
__device__ bool FindPlace(const GatedRowsArgs& args, Place* place) {
  const int64_t vectors = args.size / kVector;
  const int64_t vector =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  *place = {vector / vectors, vector % vectors * kVector};
  return vector < args.rows * vectors;
}

template <typename T>
__global__ __launch_bounds__(kThreads) void GatedRowsKernel(
    GatedRowsArgs args) {
  Place place;
  if (!FindPlace(args, &place)) return;
  const int64_t at = place.row * args.size + place.column;
  const Vector8<T> gates = Load8(static_cast<const T*>(args.gate) + at);
  const Vector8<T> ups = Load8(static_cast<const T*>(args.up) + at);
  Vector8<T> out;
  for (int k = 0; k < kVector; ++k) {
    out.value[k] = Gated<T>(ToFloat(gates.value[k]), ToFloat(ups.value[k]));
  }
  Store8(static_cast<T*>(args.out) + place.row * args.out_stride + place.column,
         out);
}

template <typename T>
__global__ __launch_bounds__(kThreads) void GatedRowsBackwardKernel(
    GatedRowsArgs args) {
  Place place;
  if (!FindPlace(args, &place)) return;
  const int64_t at = place.row * args.size + place.column;
  Vector8<T> gates = Load8(static_cast<const T*>(args.gate) + at);
  Vector8<T> ups = Load8(static_cast<const T*>(args.up) + at);
  const Vector8<T> grads = Load8(static_cast<const T*>(args.out) +
                                 place.row * args.out_stride + place.column);
  for (int k = 0; k < kVector; ++k) {
    const GatedGradients found = GatedBackward(ToFloat(grads.value[k]),
                                               ToFloat(gates.value[k]),
                                               ToFloat(ups.value[k]));
    gates.value[k] = FromFloat<T>(found.gate);
    ups.value[k] = FromFloat<T>(found.up);
  }
  Store8(static_cast<T*>(args.gate) + at, gates);
  Store8(static_cast<T*>(args.up) + at, ups);
}

unsigned NumBlocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

}  // namespace

extern "C" int DapdCudaNormRows(const NormRowsArgs* args,
                                CudaNumber number,
                                void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    NormRowsKernel<decltype(t)><<<static_cast<unsigned>(args->rows),
                                  kThreads,
                                  0,
                                  static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

extern "C" int DapdCudaNormRowsBackward(const NormRowsBackwardArgs* args,
                                        CudaNumber number,
                                        void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    NormRowsBackwardKernel<decltype(t)>
        <<<static_cast<unsigned>(args->rows),
           kThreads,
           0,
           static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

extern "C" int DapdCudaRotateRows(const RotateRowsArgs* args,
                                  CudaNumber number,
                                  void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    RotateRowsKernel<decltype(t)><<<NumBlocks(args->rows * args->heads, kWarps),
                                    kThreads,
                                    0,
                                    static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

extern "C" int DapdCudaRotateRowsBackward(const RotateRowsArgs* args,
                                          CudaNumber number,
                                          void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    RotateRowsBackwardKernel<decltype(t)>
        <<<NumBlocks(args->rows * args->heads, kWarps),
           kThreads,
           0,
           static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

extern "C" int DapdCudaGatedRows(const GatedRowsArgs* args,
                                 CudaNumber number,
                                 void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    GatedRowsKernel<decltype(t)>
        <<<NumBlocks(args->rows * (args->size / kVector), kThreads),
           kThreads,
           0,
           static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

extern "C" int DapdCudaGatedRowsBackward(const GatedRowsArgs* args,
                                         CudaNumber number,
                                         void* stream) {
  if (args->rows == 0) return 0;
  return LaunchFor(number, [&](auto t) {
    GatedRowsBackwardKernel<decltype(t)>
        <<<NumBlocks(args->rows * (args->size / kVector), kThreads),
           kThreads,
           0,
           static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

}  // namespace dapd
