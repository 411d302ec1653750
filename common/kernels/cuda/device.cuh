// Device code that the kernels of this folder share.
#pragma once

#include <cuda_runtime.h>

#include "common/kernels/decode_attention_math.h"
#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/launch.h"

namespace dapd {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
inline constexpr int kWarp = 32;

// Eight numbers in one or two 16-byte loads.
template <typename T>
struct alignas(16) Vector8 {
  T value[8];
};

// Two of them in one load.
template <typename T>
struct alignas(2 * sizeof(T)) Vector2 {
  T value[2];
};

template <typename T>
__device__ inline Vector8<T> Load8(const T* from) {
  return *reinterpret_cast<const Vector8<T>*>(from);
}

template <typename T>
__device__ inline void Store8(T* to, const Vector8<T>& vector) {
  *reinterpret_cast<Vector8<T>*>(to) = vector;
}

// The sum over groups of `kLanes` lanes, in every one of them.
template <int kLanes>
__device__ inline float ButterflySum(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

__device__ inline float ButterflyMax(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

enum class CachedPart { kKeys, kValues };

// [kSplitTokens, head_dim] of one KV head in one page of a slot.
template <typename T>
__device__ inline T* CachedTokens(const CudaKvPages& cache,
                                  int64_t slot,
                                  int64_t page,
                                  CachedPart part,
                                  int64_t kv_heads,
                                  int64_t kv_head,
                                  int64_t head_dim) {
  const int64_t index =
      (cache.layer * 2 + (part == CachedPart::kKeys ? 0 : 1)) * kv_heads +
      kv_head;
  return static_cast<T*>(cache.pages[slot * cache.pages_per_slot + page]) +
         index * kSplitTokens * head_dim;
}

// Calls `launch` with a T that stands for `number`.
template <typename Launch>
int LaunchFor(CudaNumber number, const Launch& launch) {
  if (number == CudaNumber::kFloat32) {
    launch(float{});
  } else {
    launch(BFloat16{});
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace dapd
