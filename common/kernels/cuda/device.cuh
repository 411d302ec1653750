// Device code that the kernels of this folder share.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <type_traits>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/decode_attention_math.h"

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
__device__ inline Vector2<T> Load2(const T* from) {
  return *reinterpret_cast<const Vector2<T>*>(from);
}

template <typename T>
__device__ inline Vector8<T> Load8(const T* from) {
  return *reinterpret_cast<const Vector8<T>*>(from);
}

template <typename T>
__device__ inline void Store8(T* to, const Vector8<T>& vector) {
  *reinterpret_cast<Vector8<T>*>(to) = vector;
}

// The sum over groups of `kLanes` lanes, in every one of them.
template <int kLanes, typename T>
__device__ inline T ButterflySum(T value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

// The maximum, likewise.
template <int kLanes = kWarp>
__device__ inline float ButterflyMax(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
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
  // Past the L1 cache: this may come before WaitForLaunchBefore.
  const auto address = __ldcg(reinterpret_cast<const unsigned long long*>(
      cache.pages + slot * cache.pages_per_slot + page));
  return reinterpret_cast<T*>(address) + index * kSplitTokens * head_dim;
}

// Whether a launch before may still run until WaitForLaunchBefore.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kMayBeginEarly = true;
#else
inline constexpr bool kMayBeginEarly = false;
#endif

// Programmatic dependent launch (sm_90): a launch may begin while the one
// before it on its stream, or in its graph, still runs, so that what comes
// before a kernel's first instruction costs nothing. Its kernel has to call
// this in every thread, before it reads or writes any memory but its block's
// and what it knows that the launch before does not write; from there on
// everything is there that earlier launches have written. What those in front
// of the launch before have written is there from the start: it has waited for
// them before it let this one begin.
__device__ inline void WaitForLaunchBefore() {
  if constexpr (kMayBeginEarly) cudaGridDependencySynchronize();
}

// The launch behind this one may begin as soon as all blocks are here, if it
// was launched that way; else it begins with the end of the last block.
__device__ inline void LetNextLaunchBegin() {
  if constexpr (kMayBeginEarly) cudaTriggerProgrammaticLaunchCompletion();
}

// How many blocks of `per_block` do so much work.
inline unsigned NumBlocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// Of the current device; nothing where it does not say.
inline std::optional<int> DeviceAttribute(cudaDeviceAttr what) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, what, device) != cudaSuccess) {
    return std::nullopt;
  }
  return value;
}

enum class Begin {
  kInTurn,  // behind the end of the launch before it
  kEarly,   // where the device can; the kernel calls WaitForLaunchBefore
};

inline bool TakesEarlyLaunches() {
  return DeviceAttribute(cudaDevAttrComputeCapabilityMajor).value_or(0) >= 9;
}

// What a launcher answers. Its caller knows of the error then, and LibTorch
// must not find it behind its own next launch.
inline int Answer(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<int>(error);
}

// What launches that begin early ask for of a multiprocessor's shared memory,
// in percent: it changes how much of its cache that is only when no block runs
// on it, so where they differed one would wait for the blocks of another. Of an
// H100's 228 KB that are 164, room for a block of a product's and one of
// attention, which leaves the L1 cache 92 for what all blocks of a product
// read.
inline constexpr int kSharedCarveout = 71;

// Launches kKernel(args), with so much dynamic shared memory a block; a
// cudaError_t.
template <auto kKernel, typename Args>
int LaunchOn(void* stream,
             Begin begin,
             dim3 grid,
             int threads,
             const Args& args,
             size_t shared_bytes = 0) {
  const bool is_early = begin == Begin::kEarly && TakesEarlyLaunches();
  cudaError_t error = cudaSuccess;
  if (is_early) {
    error = cudaFuncSetAttribute(kKernel,
                                 cudaFuncAttributePreferredSharedMemoryCarveout,
                                 kSharedCarveout);
  }
  if (error == cudaSuccess && shared_bytes > 0) {
    error = cudaFuncSetAttribute(kKernel,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
  }
  if (error != cudaSuccess) return Answer(error);
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {grid,
                                     dim3(static_cast<unsigned>(threads)),
                                     shared_bytes,
                                     static_cast<cudaStream_t>(stream),
                                     &early,
                                     is_early ? 1U : 0U};
  return Answer(cudaLaunchKernelEx(&config, kKernel, args));
}

// Calls `launch` with a T that stands for `number`. Its result, or where it has
// none the last launch's.
template <typename Launch>
int LaunchFor(CudaNumber number, const Launch& launch) {
  const auto call = [&launch](auto t) -> int {
    if constexpr (std::is_void_v<decltype(launch(t))>) {
      launch(t);
      return static_cast<int>(cudaGetLastError());
    } else {
      return launch(t);
    }
  };
  return number == CudaNumber::kFloat32 ? call(float{}) : call(BFloat16{});
}

}  // namespace dapd
