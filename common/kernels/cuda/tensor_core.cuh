// The tensor core instruction that the kernels of this folder use, and the
// loads of its operands.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/kernels/bfloat16.h"
#include "common/kernels/float8.h"

namespace dapd {

// Eight bfloat16 numbers of a row that lie side by side.
struct alignas(16) BFloat16Pairs {
  uint32_t pair[4];
};

enum class LoadedPast {
  kNothing,
  kL1,  // past the L1 cache, which may hold an older value; for data read once
};

// Sets the pairs to those at `from` if `is_in`. The choice is hidden from the
// compiler: where it sees the choice, it waits for the first of several loads
// before it begins the second.
template <LoadedPast kPast = LoadedPast::kNothing>
__device__ inline void LoadIf(bool is_in,
                              const BFloat16* from,
                              BFloat16Pairs& pairs) {
#ifdef __CUDACC__
#define DAPD_LOAD_IF(INSTRUCTION)               \
  asm volatile(                                 \
      "{\n"                                     \
      ".reg .pred is_in;\n"                     \
      "setp.ne.s32 is_in, %4, 0;\n"             \
      "@is_in " INSTRUCTION                     \
      " {%0, %1, %2, %3}, [%5];\n"              \
      "}"                                       \
      : "+r"(pairs.pair[0]),                    \
        "+r"(pairs.pair[1]),                    \
        "+r"(pairs.pair[2]),                    \
        "+r"(pairs.pair[3])                     \
      : "r"(static_cast<int>(is_in)), "l"(from) \
      : "memory")
  if constexpr (kPast == LoadedPast::kL1) {
    DAPD_LOAD_IF("ld.global.cg.v4.u32");
  } else {
    DAPD_LOAD_IF("ld.global.v4.u32");
  }
#undef DAPD_LOAD_IF
#else
  if (is_in) pairs = *reinterpret_cast<const BFloat16Pairs*>(from);
#endif
}

// Eight Float8 of a row that lie side by side.
struct alignas(8) Float8Octet {
  uint32_t four[2];
};

// Does the same for Float8 numbers, past the L1 cache.
__device__ inline void LoadIf(bool is_in,
                              const Float8* from,
                              Float8Octet& octet) {
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      ".reg .pred is_in;\n"
      "setp.ne.s32 is_in, %2, 0;\n"
      "@is_in ld.global.cg.v2.u32 {%0, %1}, [%3];\n"
      "}"
      : "+r"(octet.four[0]), "+r"(octet.four[1])
      : "r"(static_cast<int>(is_in)), "l"(from)
      : "memory");
#else
  if (is_in) octet = *reinterpret_cast<const Float8Octet*>(from);
#endif
}

// Does the same for one number, past the L1 cache.
__device__ inline void LoadIf(bool is_in,
                              const BFloat16* from,
                              BFloat16& number) {
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      ".reg .pred is_in;\n"
      "setp.ne.s32 is_in, %1, 0;\n"
      "@is_in ld.global.cg.u16 %0, [%2];\n"
      "}"
      : "+h"(number.bits)
      : "r"(static_cast<int>(is_in)), "l"(from)
      : "memory");
#else
  if (is_in) number = *from;
#endif
}

// Returns two of four Float8, the first two or the last two, as bfloat16. Their
// bits, shifted to the place of a bfloat16's, are 2^120 times too small.
__device__ inline uint32_t BFloat16PairOf(uint32_t four, int pair) {
#ifdef __CUDACC__
  const uint32_t spread = __byte_perm(four, 0, pair == 0 ? 0x1404 : 0x3424);
  const uint32_t bits = (spread & 0x80008000U) | (spread >> 4 & 0x07F007F0U);
  uint32_t scaled;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(scaled)
      : "r"(bits), "r"(0x7B807B80U), "r"(0x80008000U));
  return scaled;
#else
  const auto number = [four](int i) {
    const Float8 value = {static_cast<uint8_t>(four >> (8 * i))};
    return static_cast<uint32_t>(FromFloat<BFloat16>(ToFloat(value)).bits);
  };
  return number(2 * pair) | number(2 * pair + 1) << 16;
#endif
}

__device__ inline BFloat16Pairs ToPairs(const Float8Octet& octet) {
  return {BFloat16PairOf(octet.four[0], 0),
          BFloat16PairOf(octet.four[0], 1),
          BFloat16PairOf(octet.four[1], 0),
          BFloat16PairOf(octet.four[1], 1)};
}
__device__ inline const BFloat16Pairs& ToPairs(const BFloat16Pairs& pairs) {
  return pairs;
}

// Adds a [16, 16] times b [8, 16]^T to sums [16, 8] in float32, by a whole
// warp. Lane l holds:
//   a     of rows l / 4 and l / 4 + 8 the pairs of columns l % 4 and l % 4 + 4:
//         a[0] and a[2], a[1] and a[3],
//   b     of row l / 4 the same pairs,
//   sums  of rows l / 4 and l / 4 + 8 columns 2 (l % 4) and the next.
// (PTX ISA, "mma.m16n8k16 with floating point type".)
__device__ inline void MultiplyTile(const uint32_t (&a)[4],
                                    const uint32_t (&b)[2],
                                    float (&sums)[4]) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  fake::MultiplyTile(a, b, sums);
#endif
}

// Does the same for a [16, 32] and b [8, 32]. Lane l has the numbers from 8 (l
// % 4) on of its rows. Both operands take the columns in the same permuted
// order, so that no number has to move to another lane.
__device__ inline void MultiplyTile(const BFloat16Pairs& upper,
                                    const BFloat16Pairs& lower,
                                    const BFloat16Pairs& b,
                                    float (&sums)[4]) {
#pragma unroll
  for (int half = 0; half < 4; half += 2) {
    MultiplyTile({upper.pair[half],
                  lower.pair[half],
                  upper.pair[half + 1],
                  lower.pair[half + 1]},
                 {b.pair[half], b.pair[half + 1]},
                 sums);
  }
}

// Transposes four tiles [8, 8] of shared memory, by a whole warp. Lane l names
// row l % 8 of tile l / 8, whose numbers lie side by side, and gets from column
// l / 4 of each tile the pair of rows l % 4. So a tile of 16 rows becomes the
// operand b of MultiplyTile for the product with its columns. (PTX ISA,
// "ldmatrix".)
__device__ inline void LoadTransposedTiles(const BFloat16* row,
                                           uint32_t (&tiles)[4]) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
      "{%0, %1, %2, %3}, [%4];"
      : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
      : "r"(address)
      : "memory");
#else
  const BFloat16Pairs own = *reinterpret_cast<const BFloat16Pairs*>(row);
  fake::TransposeTiles(own.pair, tiles);
#endif
}

}  // namespace dapd
