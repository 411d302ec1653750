// Messages between the blocks of a cluster (sm_90). A thread writes a number
// into another block's shared memory; an mbarrier there counts the bytes, and
// that block waits for the count. (PTX ISA, "mbarrier", "st.async".)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace dapd {

// Counts the bytes of one phase after the other. ExpectBytes must be called
// once for each phase. Bytes of a phase may arrive before that call, but not
// during the phase before.
using MessageCount = uint64_t;

#ifdef __CUDACC__
template <typename T>
__device__ inline uint32_t SharedAddress(const T* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#endif

// One thread calls this before the cluster's barrier and before all messages.
__device__ inline void InitCount(MessageCount* count) {
#ifdef __CUDACC__
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n"
      "fence.mbarrier_init.release.cluster;" ::"r"(SharedAddress(count))
      : "memory");
#else
  fake::InitCount(count);
#endif
}

// One thread calls this to say how many bytes the phase has.
__device__ inline void ExpectBytes(MessageCount* count, int bytes) {
#ifdef __CUDACC__
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(count)),
               "r"(bytes)
               : "memory");
#else
  fake::ExpectBytes(count, bytes);
#endif
}

// Writes `value` to *to in the block `rank` and counts its bytes at *count
// there. Both are shared variables.
template <typename T>
__device__ inline void SendTo(int rank,
                              T* to,
                              const T& value,
                              MessageCount* count) {
  constexpr int kPair = 2 * sizeof(uint64_t);
  static_assert(sizeof(T) % kPair == 0);
#ifdef __CUDACC__
  uint64_t bits[sizeof(T) / sizeof(uint64_t)];
  memcpy(bits, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) / kPair; ++i) {
    asm volatile(
        "{\n"
        ".reg .b32 to, count;\n"
        "mapa.shared::cluster.u32 to, %0, %4;\n"
        "mapa.shared::cluster.u32 count, %1, %4;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 "
        "[to], {%2, %3}, [count];\n"
        "}" ::"r"(SharedAddress(to) + i * kPair),
        "r"(SharedAddress(count)),
        "l"(bits[2 * i]),
        "l"(bits[2 * i + 1]),
        "r"(rank)
        : "memory");
  }
#else
  fake::SendBytes(rank, to, &value, sizeof(T), count);
#endif
}

// Waits until all bytes of a phase have arrived. `parity` is the last bit of
// the phase's number.
__device__ inline void WaitForBytes(MessageCount* count, int parity) {
#ifdef __CUDACC__
  int is_over = 0;
  while (is_over == 0) {
    asm volatile(
        "{\n"
        ".reg .pred is_over;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
        "is_over, [%1], %2;\n"
        "selp.s32 %0, 1, 0, is_over;\n"
        "}"
        : "=r"(is_over)
        : "r"(SharedAddress(count)), "r"(parity)
        : "memory");
  }
#else
  fake::WaitForBytes(count, parity);
#endif
}

}  // namespace dapd
