// Writes PackedGemm's sums to C.
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include <cstdint>

#include "common/kernels/simd_halves.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// The place of a tile in C: `rows` by `columns` entries of the product, which
// are overwritten if `is_first` and otherwise added to. C's lines are `stride`
// apart.
template <typename C>
struct TileOfC {
  C* c;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  bool is_first;
};

// Writes the first `count` lanes of `sum`, at most all of them, to a line of C.
template <typename C>
void PutPart(const Floats& sum, int64_t count, bool is_first, C* to) {
  StorePart(is_first ? sum : LoadPart(to, count, 0.0F) + sum, count, to);
}

// Writes the tile's part of a block, whose rows are `stride` apart. It is
// inlined, because the tile may be a few entries of a product of few steps.
template <typename C>
__attribute__((always_inline)) inline void PutBlock(const float* block,
                                                    int64_t stride,
                                                    const TileOfC<C>& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    C* to = tile.c + r * tile.stride;
    const float* from = block + r * stride;
    for (int64_t j = 0; j < tile.columns; ++j) {
      to[j] = FromFloat<C>(tile.is_first ? from[j] : ToFloat(to[j]) + from[j]);
    }
  }
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
