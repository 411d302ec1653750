// Products with panels of bfloat16 (decode_kernels.h) by tiles (tile_block.h).
//
// A panel is laid out for tiles: a step is kTileBlock words. Rows are packed in
// groups of one block; within a group the words of one tile's depth follow row
// by row, so that a tile is read in order. A group passes over the whole panel
// while its sums stay in the tiles; the next group finds the panel in the
// second-level cache.
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include "common/kernels/decode_kernels.h"
#include "common/kernels/packed_gemm_pack.h"
#include "common/kernels/tile_block.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

static_assert(kPanelWidth == kTileBlock);
// A panel is fetched this far ahead into the first-level cache: a third of it.
constexpr int64_t kAheadBytes = 16384;

// Implements DecodeKernels::pack_bfloat16.
inline void PackForTiles(const float* x,
                         int64_t stride,
                         int64_t rows,
                         int64_t depth,
                         int64_t padded,
                         uint16_t* out) {
  auto* to = reinterpret_cast<uint32_t*>(out);
  const int64_t words = padded / 2;
  for (int64_t group = 0; group < rows; group += kTileBlock) {
    const int64_t end = LeastOf(group + kTileBlock, rows);
    for (int64_t begin = 0; begin < words; begin += kTileWords) {
      const int64_t last = LeastOf(begin + kTileWords, words);
      for (int64_t row = group; row < end; ++row) {
        PackPairs(x + row * stride, begin, last, depth, to);
        to += last - begin;
      }
    }
  }
}

// Adds the rest of a depth that is not a multiple of a tile's: `words` words of
// the rows and as many steps of the panel, both padded with zeros.
template <typename Tiles>
void AddRest(const uint32_t* a,
             const uint32_t* panel,
             int64_t rows,
             int64_t words,
             Tiles* tiles) {
  alignas(64) uint32_t whole_a[kTileBlock * kTileWords] = {};
  alignas(64) uint32_t whole_b[kTileWords * kTileBlock] = {};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t s = 0; s < words; ++s) {
      whole_a[row * kTileWords + s] = a[row * words + s];
    }
  }
  for (int64_t i = 0; i < words * kTileBlock; ++i) whole_b[i] = panel[i];
  // The compiler does not see that the tile instructions read memory.
  __asm__ volatile("" ::: "memory");
  tiles->MultiplyAdd(whole_a, kTileWords, whole_b);
}

// Implements DecodeKernels::multiply_bfloat16_dot for rows that PackForTiles
// packed.
template <typename Tiles>
void MultiplyByTiles(const uint16_t* panel,
                     const uint16_t* packed,
                     int64_t rows,
                     int64_t depth,
                     float* y,
                     int64_t y_stride) {
  const int64_t words = depth / 2;
  const int64_t whole_words = words / kTileWords * kTileWords;
  const auto* a = reinterpret_cast<const uint32_t*>(packed);
  __asm__ volatile("" ::: "memory");
  for (int64_t group = 0; group < rows; group += kTileBlock) {
    const int64_t count = LeastOf(kTileBlock, rows - group);
    const auto* b = reinterpret_cast<const uint32_t*>(panel);
    Tiles tiles(count);
    tiles.Clear();
    for (int64_t s = 0; s < whole_words; s += kTileWords) {
      tiles.MultiplyAdd(a, kTileWords, b);
      // Later groups find the panel in the cache.
      if (group == 0) {
        const auto* ahead = reinterpret_cast<const char*>(b) + kAheadBytes;
        constexpr int64_t kStepBytes = kTileWords * kTileBlock * 4;
        for (int64_t byte = 0; byte < kStepBytes; byte += 64) {
          __builtin_prefetch(ahead + byte);
        }
      }
      a += count * kTileWords;
      b += kTileWords * kTileBlock;
    }
    if (const int64_t rest = words - whole_words; rest > 0) {
      AddRest(a, b, count, rest, &tiles);
      a += count * rest;
    }
    tiles.Store(y + group * y_stride, y_stride);
  }
  __asm__ volatile("" ::: "memory");
}

template <typename Tiles>
void SetTileProducts(DecodeKernels* kernels) {
  kernels->pack_bfloat16 = PackForTiles;
  kernels->multiply_bfloat16_dot = MultiplyByTiles<Tiles>;
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
