// The tensor cores' product of a warp group, whose operands lie in shared
// memory as CopyBox puts them there (sm_90a). (PTX ISA, "wgmma.mma_async".)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/cuda/bulk_copy.cuh"

// The instruction exists on sm_90 alone; for other devices a kernel that uses
// it is compiled empty.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DAPD_HAS_WARPGROUPS 1
#endif

namespace dapd {

inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kWarpgroupRows = 64;   // of the first operand
inline constexpr int kWarpgroupCols = 32;   // rows of the second operand
inline constexpr int kWarpgroupInner = 16;  // numbers that it takes at a time

#ifdef DAPD_HAS_WARPGROUPS

#ifdef __CUDACC__
// Describes the part of a box from column `col` on: its address, the 1,024
// bytes from eight rows to the next, and the permutation of 128-byte rows.
template <int kRows>
__device__ inline uint64_t OperandAt(const Box<kRows>& box, int col) {
  constexpr uint64_t kEightRows = 8 * sizeof(box.number[0]) / 16;
  constexpr uint64_t kPermuted128 = 1;
  const uint64_t address =
      SharedAddress(&box) + static_cast<uint32_t>(col * sizeof(BFloat16));
  return (address & 0x3FFFFU) >> 4 | uint64_t{1} << 16 | kEightRows << 32 |
         kPermuted128 << 62;
}

// Keeps the compiler from moving uses of the sums across this place: it does
// not know that the instructions write them until the wait.
__device__ inline void KeepInPlace(float (&sums)[16]) {
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}
#endif

// Adds a [64, 64] times b [32, 64]^T to sums, by a whole warp group; all of its
// threads have waited for both boxes. Lane l of warp w holds in sums[4 j + 2 h
// + i] row 16 w + l / 4 + 8 h and column 8 j + 2 (l % 4) + i. When it returns,
// the thread no longer reads the boxes. `group` rows of a come before its own.
template <int kRows>
__device__ inline void MultiplyBoxes(const Box<kRows>& a,
                                     int group,
                                     const Box<kWarpgroupCols>& b,
                                     float (&sums)[16]) {
#ifdef __CUDACC__
  KeepInPlace(sums);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  const uint64_t of_group =
      static_cast<uint64_t>(group * static_cast<int>(sizeof(a.number[0])) / 16);
#pragma unroll
  for (int col = 0; col < kBoxCols; col += kWarpgroupInner) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.s32 adds, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15}, %16, %17, adds, 1, 1, 0, 0;\n"
        "}"
        : "+f"(sums[0]),
          "+f"(sums[1]),
          "+f"(sums[2]),
          "+f"(sums[3]),
          "+f"(sums[4]),
          "+f"(sums[5]),
          "+f"(sums[6]),
          "+f"(sums[7]),
          "+f"(sums[8]),
          "+f"(sums[9]),
          "+f"(sums[10]),
          "+f"(sums[11]),
          "+f"(sums[12]),
          "+f"(sums[13]),
          "+f"(sums[14]),
          "+f"(sums[15])
        : "l"(OperandAt(a, col) + of_group), "l"(OperandAt(b, col))
        : "memory");
  }
  asm volatile(
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 0;" ::
          : "memory");
  KeepInPlace(sums);
#else
  fake::MultiplyBoxes(a.number[group], b.number[0], sums);
#endif
}

#endif  // DAPD_HAS_WARPGROUPS

}  // namespace dapd
