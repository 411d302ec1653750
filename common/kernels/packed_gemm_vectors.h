// Computes a part of PackedGemm with vectors: a tile of C stays in the
// registers while it is summed.
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include "common/kernels/packed_gemm_pack.h"
#include "common/kernels/packed_gemm_result.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// The largest tile that fits the registers, with two vectors of B and one of A.
constexpr int kTileRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;
constexpr int kTileColumns = 2 * kLanes;

struct FloatProduct {
  using Format = FloatWords;
  static Floats MultiplyAdd(Floats sum, uint32_t a, Words b) {
    return sum + (FloatFromBits(a) - Floats{}) * reinterpret_cast<Floats>(b);
  }
};

#if defined(__AVX512BF16__)
struct PairProduct {
  using Format = PairWords;
  static Floats MultiplyAdd(Floats sum, uint32_t a, Words b) {
    const Words all = a - Words{};
    return reinterpret_cast<Floats>(
        _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                         reinterpret_cast<__m512bh>(all),
                         reinterpret_cast<__m512bh>(b)));
  }
};
#endif

uint32_t WordOf(uint32_t word) { return word; }
uint32_t WordOf(float number) { return BitsOfFloat(number); }

// The rows of A that a tile reads, one word of each per step. Here the words of
// a step lie side by side and steps are `stride` apart, as in a packed panel or
// in a transposed A.
template <typename T>
class RowsSideBySide {
 public:
  RowsSideBySide(const T* step, int64_t stride)
      : step_(step), stride_(stride) {}
  uint32_t At(int row) const { return WordOf(step_[row]); }
  void Advance() { step_ += stride_; }

 private:
  const T* step_;
  int64_t stride_;
};

// The rows of A that a tile reads, each in a line of its own, `stride` apart.
// One pointer serves three lines: the load instruction adds the stride once or
// twice.
class RowsInLines {
 public:
  RowsInLines(const float* first, int64_t stride) : stride_(stride) {
#pragma GCC unroll 16
    for (int i = 0; i < kPointers; ++i) rows_[i] = first + 3 * i * stride;
  }
  uint32_t At(int row) const {
    return WordOf(rows_[row / 3][row % 3 * stride_]);
  }
  void Advance() {
#pragma GCC unroll 16
    for (int i = 0; i < kPointers; ++i) ++rows_[i];
  }

 private:
  static constexpr int kPointers = (kTileRows + 2) / 3;

  const float* rows_[kPointers];
  int64_t stride_;
};

// Writes to a C whose lines are the product's rows.
struct Straight {
  template <typename C>
  static C* At(C* c, int64_t stride, int64_t row, int64_t column) {
    return c + row * stride + column;
  }

  template <typename C, int kVectors>
  static void Put(const Floats (&sums)[kTileRows][kVectors],
                  const TileOfC<C>& tile) {
    constexpr int kColumns = kVectors * kLanes;
    if (tile.rows == kTileRows && tile.columns == kColumns) {
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          PutPart(sums[r][v],
                  kLanes,
                  tile.is_first,
                  tile.c + r * tile.stride + v * kLanes);
        }
      }
      return;
    }
    float block[kTileRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        Store(sums[r][v], block[r] + v * kLanes);
      }
    }
    PutBlock(block[0], kColumns, tile);
  }
};

// Writes to a C whose lines are the product's columns.
struct Turned {
  static float* At(float* c, int64_t stride, int64_t row, int64_t column) {
    return c + column * stride + row;
  }

  template <int kVectors>
  static void Put(const Floats (&sums)[kTileRows][kVectors],
                  const TileOfC<float>& tile) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Words block[kLanes] = {};
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        block[r] = reinterpret_cast<Words>(sums[r][v]);
      }
      Transpose(block);
      const int64_t left = tile.columns - v * kLanes;
      float* to = tile.c + v * kLanes * tile.stride;
      if (tile.rows == kTileRows && left >= kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          PutPart(
              reinterpret_cast<Floats>(block[i]), kTileRows, tile.is_first, to);
          to += tile.stride;
        }
      } else {
        for (int i = 0; i < kLanes && i < left; ++i) {
          PutPart(
              reinterpret_cast<Floats>(block[i]), tile.rows, tile.is_first, to);
          to += tile.stride;
        }
      }
    }
  }
};

// Computes one tile over `steps` words of A's rows and of a packed panel of B;
// of the panel's columns it computes the first kVectors vectors. Lines is
// Straight or Turned.
template <typename Product,
          typename Lines,
          int kVectors,
          typename Rows,
          typename C>
void MultiplyTile(Rows a,
                  const uint32_t* b,
                  int64_t steps,
                  const TileOfC<C>& tile) {
  Floats sums[kTileRows][kVectors] = {};
  for (int64_t s = 0; s < steps; ++s) {
    Words step[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) step[v] = Load<Words>(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const uint32_t word = a.At(r);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = Product::MultiplyAdd(sums[r][v], word, step[v]);
      }
    }
    a.Advance();
    b += kTileColumns;
  }
  Lines::Put(sums, tile);
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
