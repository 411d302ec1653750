// A part of PackedGemm by vectors: a tile of C, which stays in the registers
// while it is summed, and what such a tile reads and writes.
//
// Included by what is compiled once per CPU level, only.
#pragma once

#include "common/kernels/packed_gemm_pack.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// The tile that fits the registers, with two vectors of B and one of A.
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

// The rows of A that a tile reads, a word of each per step: side by side, and
// step after step `stride` apart, as in a packed panel or a transposed A,
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

// or each in a line of its own, `stride` apart. One pointer serves three lines:
// the processor adds the stride to it once or twice as it loads.
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

// Where a tile of C goes: `rows` by `columns` entries, of lines `stride` apart,
// which are overwritten if `is_first`, else added to.
template <typename C>
struct StraightTile {
  using Element = C;

  static C* At(C* c, int64_t stride, int64_t row, int64_t column) {
    return c + row * stride + column;
  }

  template <int kVectors>
  void Put(const Floats (&sums)[kTileRows][kVectors]) const {
    constexpr int kColumns = kVectors * kLanes;
    if (rows == kTileRows && columns == kColumns) {
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          C* to = c + r * stride + v * kLanes;
          StoreAll(is_first ? sums[r][v] : LoadAll(to) + sums[r][v], to);
        }
      }
      return;
    }
    float tile[kTileRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        Store(sums[r][v], tile[r] + v * kLanes);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) {
        C* to = c + r * stride + j;
        *to = FromFloat<C>(is_first ? tile[r][j] : ToFloat(*to) + tile[r][j]);
      }
    }
  }

  C* c;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  bool is_first;
};

// The same of a C whose lines are the product's columns.
struct TurnedTile {
  using Element = float;

  static float* At(float* c, int64_t stride, int64_t row, int64_t column) {
    return c + column * stride + row;
  }

  template <int kVectors>
  void Put(const Floats (&sums)[kTileRows][kVectors]) const {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Words block[kLanes] = {};
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        block[r] = reinterpret_cast<Words>(sums[r][v]);
      }
      Transpose(block);
      const int64_t left = columns - v * kLanes;
      float* to = c + v * kLanes * stride;
      if (rows == kTileRows && left >= kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          AddLine(reinterpret_cast<Floats>(block[i]), kTileRows, to);
          to += stride;
        }
      } else {
        for (int i = 0; i < kLanes && i < left; ++i) {
          AddLine(reinterpret_cast<Floats>(block[i]), rows, to);
          to += stride;
        }
      }
    }
  }

  void AddLine(Floats sum, int64_t count, float* to) const {
    StorePart(is_first ? sum : LoadPart(to, count, 0.0F) + sum, count, to);
  }

  float* c;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  bool is_first;
};

// One tile over `steps` words of A's rows and of a packed panel of B, of whose
// columns it computes the first kVectors vectors.
template <typename Product, int kVectors, typename Rows, typename Tile>
void MultiplyTile(Rows a, const uint32_t* b, int64_t steps, const Tile& tile) {
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
  tile.Put(sums);
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
