// One part of PackedGemm, compiled once per CPU level.
#include <type_traits>

#include "common/kernels/packed_gemm_cpu_levels.h"
#include "common/kernels/packed_gemm_pack.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// The tile of C that fits the registers, with two vectors of B and one of A.
constexpr int kTileRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;
constexpr int kTileColumns = 2 * kLanes;
constexpr int64_t kDepthBlock = 512;
// Words of B that are packed at a time: a share of the second-level cache.
constexpr int64_t kBlockWords = int64_t{1} << 17;

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

struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

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

// One tile of C over `steps` words of A's rows and of a packed panel of B, of
// whose columns it computes the first kVectors vectors; `c` is overwritten if
// `is_first`, else added to.
template <typename Product, int kVectors, typename Rows, typename C>
void MultiplyTile(Rows a,
                  const uint32_t* b,
                  int64_t steps,
                  bool is_first,
                  C* c,
                  int64_t stride,
                  int64_t rows,
                  int64_t columns) {
  constexpr int kColumns = kVectors * kLanes;
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

int64_t CountTiles(int64_t size, int64_t tile) {
  return (size + tile - 1) / tile;
}

int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// A, B and C are the matrices' elements.
template <typename Product, typename A, typename B, typename C>
class GemmPart {
 public:
  using Format = typename Product::Format;

  GemmPart(const GemmOperands& operands, Range rows, Range columns)
      : op_(operands),
        a_(static_cast<const A*>(operands.a)),
        c_(static_cast<C*>(operands.c)),
        rows_(rows),
        columns_(columns),
        depth_(op_.k <= kGemmWholeDepth ? op_.k : kDepthBlock),
        steps_(CountTiles(depth_, Format::kDepth)),
        panels_(Least(CountTiles(columns.size(), kTileColumns),
                      kBlockWords / (steps_ * kTileColumns) + 1)),
        // PackLines writes up to kLanes words too many.
        packed_a_(CountPackedTiles() * kTileRows * steps_ + kLanes),
        packed_b_(panels_ * kTileColumns * steps_ + kLanes) {}

  void Run() {
    for (int64_t k = 0; k < op_.k; k += depth_) {
      const int64_t depth = Least(depth_, op_.k - k);
      PackA(k, depth);
      for (int64_t j = columns_.begin; j < columns_.end;
           j += panels_ * kTileColumns) {
        const Range block{j, Least(j + panels_ * kTileColumns, columns_.end)};
        PackB(k, depth, block);
        MultiplyBlock(
            k, block, CountTiles(depth, Format::kDepth), k == 0 && !op_.adds);
      }
    }
  }

 private:
  // Floats are multiplied as they are.
  static constexpr bool kMayStayInPlace =
      std::is_same_v<Product, FloatProduct> && std::is_same_v<A, float>;

  // Whether the tile of rows from `row` on, if all of them are there, is read
  // where it lies. Rows side by side are, for the one panel that reads them;
  // lines, if they do not push each other out of the first-level cache, which
  // repeats every 4 KiB, and are worth the pointers.
  bool IsInPlace(int64_t row) const {
    if (!kMayStayInPlace || rows_.end - row < kTileRows) return false;
    if (op_.a_is_transposed) return columns_.size() <= kTileColumns;
    return op_.a_stride % 1024 != 0 && op_.k > kLanes;
  }

  int64_t CountPackedTiles() const {
    const int64_t tiles = CountTiles(rows_.size(), kTileRows);
    if (!IsInPlace(rows_.begin)) return tiles;
    return tiles - rows_.size() / kTileRows;
  }

  void PackA(int64_t k, int64_t depth) {
    uint32_t* panel = packed_a_.words();
    for (int64_t i = rows_.begin; i < rows_.end; i += kTileRows) {
      if (IsInPlace(i)) continue;
      const int64_t rows = Least(kTileRows, rows_.end - i);
      if (op_.a_is_transposed) {
        // Words of one float: see RunWithA.
        PackTransposedLines(a_ + k * op_.a_stride + i,
                            op_.a_stride,
                            rows,
                            op_.m - i,
                            depth,
                            kTileRows,
                            panel);
      } else {
        PackLines<Format>(a_ + i * op_.a_stride + k,
                          op_.a_stride,
                          rows,
                          depth,
                          kTileRows,
                          panel);
      }
      panel += kTileRows * steps_;
    }
  }

  void PackB(int64_t k, int64_t depth, Range block) {
    uint32_t* panel = packed_b_.words();
    for (int64_t j = block.begin; j < block.end; j += kTileColumns) {
      const int64_t columns = Least(kTileColumns, block.end - j);
      PackPanelOfB<Format, kTileColumns, B>(op_, k, depth, j, columns, panel);
      panel += kTileColumns * steps_;
    }
  }

  void MultiplyBlock(int64_t k, Range block, int64_t steps, bool is_first) {
    const uint32_t* panel = packed_a_.words();
    for (int64_t i = rows_.begin; i < rows_.end; i += kTileRows) {
      if (!IsInPlace(i)) {
        const RowsSideBySide rows(panel, kTileRows);
        MultiplyRows(rows, i, block, steps, is_first);
        panel += kTileRows * steps_;
        continue;
      }
      if constexpr (kMayStayInPlace) {
        if (op_.a_is_transposed) {
          const RowsSideBySide rows(a_ + k * op_.a_stride + i, op_.a_stride);
          MultiplyRows(rows, i, block, steps, is_first);
        } else {
          const RowsInLines rows(a_ + i * op_.a_stride + k, op_.a_stride);
          MultiplyRows(rows, i, block, steps, is_first);
        }
      }
    }
  }

  template <typename Rows>
  void MultiplyRows(
      Rows a, int64_t i, Range block, int64_t steps, bool is_first) {
    const uint32_t* b = packed_b_.words();
    for (int64_t j = block.begin; j < block.end; j += kTileColumns) {
      const int64_t columns = Least(kTileColumns, block.end - j);
      const auto multiply = columns > kLanes
                                ? MultiplyTile<Product, 2, Rows, C>
                                : MultiplyTile<Product, 1, Rows, C>;
      multiply(a,
               b,
               steps,
               is_first,
               c_ + i * op_.c_stride + j,
               op_.c_stride,
               Least(kTileRows, rows_.end - i),
               columns);
      b += kTileColumns * steps_;
    }
  }

  const GemmOperands& op_;
  const A* a_;
  C* c_;
  Range rows_;
  Range columns_;
  int64_t depth_;   // entries along k that are packed at a time
  int64_t steps_;   // words of these
  int64_t panels_;  // of B that are packed at a time
  WordBuffer packed_a_;
  WordBuffer packed_b_;
};

template <typename Product, typename A, typename B>
void RunProduct(const GemmOperands& operands, Range rows, Range columns) {
  if (operands.c_is_bfloat16) {
    GemmPart<Product, A, B, BFloat16>(operands, rows, columns).Run();
  } else {
    GemmPart<Product, A, B, float>(operands, rows, columns).Run();
  }
}

template <typename A>
void RunWithA(const GemmOperands& operands, Range rows, Range columns) {
  if (!operands.b_is_bfloat16) {
    RunProduct<FloatProduct, A, float>(operands, rows, columns);
    return;
  }
#if defined(__AVX512BF16__)
  if (!operands.a_is_transposed) {
    RunProduct<PairProduct, A, BFloat16>(operands, rows, columns);
    return;
  }
#endif
  RunProduct<FloatProduct, A, BFloat16>(operands, rows, columns);
}

void RunPart(const GemmOperands& operands,
             int64_t row_begin,
             int64_t row_end,
             int64_t column_begin,
             int64_t column_end) {
  const Range rows{row_begin, row_end};
  const Range columns{column_begin, column_end};
  if (operands.a_is_bfloat16) {
    RunWithA<BFloat16>(operands, rows, columns);
  } else {
    RunWithA<float>(operands, rows, columns);
  }
}

}  // namespace

PackedGemmKernel MakePackedGemmKernel() {
  return {kTileRows, kTileColumns, RunPart};
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
