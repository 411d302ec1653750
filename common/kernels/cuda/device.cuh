// Device code that the kernels of this folder share.
#pragma once

#include <cuda_runtime.h>

#include <optional>
#include <type_traits>

#include "common/kernels/bfloat16.h"
#include "common/kernels/cuda/launch.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"

namespace dapd {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
inline constexpr int kWarp = 32;

// Eight numbers, which Load8 and Store8 move with one or two 16-byte
// instructions.
template <typename T>
struct alignas(16) Vector8 {
  T value[8];
};

// Two numbers, which Load2 loads with one instruction.
template <typename T>
struct alignas(2 * sizeof(T)) Vector2 {
  T value[2];
};

template <typename T>
__device__ inline Vector2<T> Load2(const T* from) {
  return *reinterpret_cast<const Vector2<T>*>(from);
}

// Loads two floats past the L1 cache, which may hold older values of memory
// that other blocks write.
__device__ inline Vector2<float> Load2PastL1(const float* from) {
#ifdef __CUDACC__
  const float2 pair = __ldcg(reinterpret_cast<const float2*>(from));
  return {{pair.x, pair.y}};
#else
  return Load2(from);
#endif
}

template <typename T>
__device__ inline Vector8<T> Load8(const T* from) {
  return *reinterpret_cast<const Vector8<T>*>(from);
}

template <typename T>
__device__ inline void Store8(T* to, const Vector8<T>& vector) {
  *reinterpret_cast<Vector8<T>*>(to) = vector;
}

// Returns the sum over groups of `kLanes` lanes in every lane of the group.
template <int kLanes, typename T>
__device__ inline T ButterflySum(T value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

// Returns the maximum over groups of `kLanes` lanes in every lane of the group.
template <int kLanes = kWarp>
__device__ inline float ButterflyMax(float value) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

enum class CachedPart { kKeys, kValues };

// Returns how many T the keys, or values, of one KV head take in a page.
template <typename T>
__device__ inline int64_t CachedPartSize(int64_t head_dim) {
  return std::is_same_v<T, Float8> ? Float8PartBytes(head_dim)
                                   : kPageTokens * head_dim;
}

// Returns the scales [kPageTokens] behind a part of a page.
__device__ inline BFloat16* ScalesOf(Float8* part, int64_t head_dim) {
  return reinterpret_cast<BFloat16*>(part + kPageTokens * head_dim);
}
__device__ inline const BFloat16* ScalesOf(const Float8* part,
                                           int64_t head_dim) {
  return reinterpret_cast<const BFloat16*>(part + kPageTokens * head_dim);
}

// Returns [kPageTokens, head_dim] of one KV head in one page of a slot. T is
// the type of the cache's numbers.
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
  // The load reads past the L1 cache, since it may come before
  // WaitForLaunchBefore.
  const auto address = __ldcg(reinterpret_cast<const unsigned long long*>(
      cache.pages + slot * cache.pages_per_slot + page));
  return reinterpret_cast<T*>(address) + index * CachedPartSize<T>(head_dim);
}

// True if the launch in front may still run before WaitForLaunchBefore.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kMayBeginEarly = true;
#else
inline constexpr bool kMayBeginEarly = false;
#endif

// Programmatic dependent launch (sm_90): a launch may begin while the launch
// before it on its stream, or in its graph, still runs, which hides the time to
// start the kernel. Every thread of the kernel must call this function before
// it reads or writes memory, except the block's own memory and memory that the
// launch before does not write. After the call it sees all writes of earlier
// launches. The launches in front of the launch before have ended, with their
// writes in the L2 cache, when this launch begins: every block of the launch
// before has waited for their end when it lets this launch begin
// (LetNextLaunchBegin). But the L1 cache of a multiprocessor may be older than
// that. So what they wrote is read before the wait only past the L1 cache
// (__ldcg, LoadedPast::kL1, copies of 16 bytes), or after a __threadfence,
// which empties it.
__device__ inline void WaitForLaunchBefore() {
  if constexpr (kMayBeginEarly) cudaGridDependencySynchronize();
}

// Lets the next launch begin once all blocks have called this, if that launch
// may begin early; otherwise it begins when the last block has ended. A kernel
// that begins early calls it after WaitForLaunchBefore only, so that at most
// two launches run at a time.
__device__ inline void LetNextLaunchBegin() {
  if constexpr (kMayBeginEarly) cudaTriggerProgrammaticLaunchCompletion();
}

// Returns how many blocks that each do `per_block` are needed for `work`.
inline unsigned NumBlocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// Returns an attribute of the current device, or nothing if the runtime does
// not know it.
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
  kInTurn,  // after the launch before it has ended
  kEarly,   // early if the device can; the kernel calls WaitForLaunchBefore
};

inline bool TakesEarlyLaunches() {
  return DeviceAttribute(cudaDevAttrComputeCapabilityMajor).value_or(0) >= 9;
}

// Returns what a launcher returns for `error`. It clears the runtime's last
// error: the caller gets this one, and LibTorch must not find it after its own
// next launch.
inline int Answer(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<int>(error);
}

// Percentage of a multiprocessor's shared memory that launches which begin
// early ask for. The split between shared memory and L1 cache changes only
// while no block runs on the multiprocessor, so launches with different values
// would wait for one another. Of an H100's 228 KB this is 164 KB, which holds a
// block of a product and a block of attention, and leaves 92 KB of L1 cache for
// the data that all blocks of a product read.
inline constexpr int kSharedCarveout = 71;

// Launches kKernel(args) with `shared_bytes` of dynamic shared memory per
// block, in clusters of `cluster` blocks. Returns a cudaError_t.
template <auto kKernel, typename Args>
int LaunchOn(void* stream,
             Begin begin,
             dim3 grid,
             int threads,
             const Args& args,
             size_t shared_bytes = 0,
             unsigned cluster = 1) {
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
  cudaLaunchAttribute attributes[2];
  unsigned num_attributes = 0;
  if (is_early) {
    cudaLaunchAttribute& early = attributes[num_attributes++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& size = attributes[num_attributes++];
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = cluster;
    size.val.clusterDim.y = 1;
    size.val.clusterDim.z = 1;
  }
  const cudaLaunchConfig_t config = {grid,
                                     dim3(static_cast<unsigned>(threads)),
                                     shared_bytes,
                                     static_cast<cudaStream_t>(stream),
                                     attributes,
                                     num_attributes};
  return Answer(cudaLaunchKernelEx(&config, kKernel, args));
}

// Calls `launch` with a value of the type T that `number` names. Returns the
// result of `launch`.
template <typename Launch>
int LaunchFor(CudaNumber number, const Launch& launch) {
  return number == CudaNumber::kFloat32 ? launch(float{}) : launch(BFloat16{});
}

}  // namespace dapd
