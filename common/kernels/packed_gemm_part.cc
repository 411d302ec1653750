// Computes one part of PackedGemm. This file is compiled once per CPU level.
#include <type_traits>
#include <utility>

#include "common/kernels/packed_gemm_cpu_levels.h"
#include "common/kernels/packed_gemm_vectors.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

constexpr int64_t kDepthBlock = 512;
// Words of B that are packed at a time: a share of the second-level cache.
constexpr int64_t kBlockWords = int64_t{1} << 17;

struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

int64_t CountTiles(int64_t size, int64_t tile) {
  return (size + tile - 1) / tile;
}

// Returns whether lines that are `stride` apart evict each other from the
// first-level cache, whose sets repeat every 4 KiB.
bool LinesCollide(int64_t stride) { return stride % 1024 == 0; }

// Returns whether lines of floats are read in place, if that is worth the
// pointers.
bool LinesStayInPlace(int64_t stride, int64_t k) {
  return !LinesCollide(stride) && k > kLanes;
}

// A, B and C are the matrices' element types. Lines says how C lies: Straight
// or Turned.
template <typename Product, typename A, typename B, typename C, typename Lines>
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
        panels_(LeastOf(CountTiles(columns.size(), kTileColumns),
                        kBlockWords / (steps_ * kTileColumns) + 1)),
        // PackLines writes up to kLanes words too many.
        packed_a_(CountPackedTiles() * kTileRows * steps_ + kLanes),
        packed_b_(panels_ * kTileColumns * steps_ + kLanes) {}

  void Run() {
    for (int64_t k = 0; k < op_.k; k += depth_) {
      const int64_t depth = LeastOf(depth_, op_.k - k);
      PackA(k, depth);
      for (int64_t j = columns_.begin; j < columns_.end;
           j += panels_ * kTileColumns) {
        const Range block{j, LeastOf(j + panels_ * kTileColumns, columns_.end)};
        PackB(k, depth, block);
        MultiplyBlock(
            k, block, CountTiles(depth, Format::kDepth), k == 0 && !op_.adds);
      }
    }
  }

 private:
  // Floats are multiplied without conversion.
  static constexpr bool kMayStayInPlace =
      std::is_same_v<Product, FloatProduct> && std::is_same_v<A, float>;

  // Returns whether the tile of rows from `row` on is read in place; all its
  // rows must exist. Rows that lie side by side are read in place if only one
  // or two panels read them.
  bool IsInPlace(int64_t row) const {
    if (!kMayStayInPlace || rows_.end - row < kTileRows) return false;
    if (!op_.a_is_transposed) return LinesStayInPlace(op_.a_stride, op_.k);
    const int64_t most_panels = LinesCollide(op_.a_stride) ? 1 : 2;
    return columns_.size() <= most_panels * kTileColumns;
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
      const int64_t rows = LeastOf(kTileRows, rows_.end - i);
      if (op_.a_is_transposed) {
        // The words are one float each; RunWithA ensures it.
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
      const int64_t columns = LeastOf(kTileColumns, block.end - j);
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
      const TileOfC<C> tile = {.c = Lines::At(c_, op_.c_stride, i, j),
                               .stride = op_.c_stride,
                               .rows = LeastOf(kTileRows, rows_.end - i),
                               .columns = LeastOf(kTileColumns, block.end - j),
                               .is_first = is_first};
      if (tile.columns > kLanes) {
        MultiplyTile<Product, Lines, 2>(a, b, steps, tile);
      } else {
        MultiplyTile<Product, Lines, 1>(a, b, steps, tile);
      }
      b += kTileColumns * steps_;
    }
  }

  const GemmOperands& op_;
  const A* a_;
  C* c_;
  Range rows_;
  Range columns_;
  int64_t depth_;   // entries along k that are packed at a time
  int64_t steps_;   // words that hold these entries
  int64_t panels_;  // panels of B that are packed at a time
  WordBuffer packed_a_;
  WordBuffer packed_b_;
};

template <typename Product, typename A, typename B>
void RunProduct(const GemmOperands& operands, Range rows, Range columns) {
  if (operands.c_is_bfloat16) {
    GemmPart<Product, A, B, BFloat16, Straight>(operands, rows, columns).Run();
  } else {
    GemmPart<Product, A, B, float, Straight>(operands, rows, columns).Run();
  }
}

// Returns whether to compute C^T = B^T A^T instead. Some float32 products of
// few rows are faster that way, because B is then read in place: the weights of
// a layer that multiply a chunk of few tokens, or the tokens of a pass that
// multiply the few rows of a low-rank update's gradient. Transposing an entry
// of C takes as long as packing two entries of B.
bool IsBetterTurned(const GemmOperands& operands, Range rows, Range columns) {
  if (operands.a_is_bfloat16 || operands.b_is_bfloat16 ||
      operands.c_is_bfloat16 ||
      operands.a_is_transposed == operands.b_is_transposed) {
    return false;
  }
  return columns.size() > rows.size() && operands.k > 2 * rows.size() &&
         (operands.b_is_transposed
              ? LinesStayInPlace(operands.b_stride, operands.k)
              : rows.size() <= kTileColumns);
}

void RunTurned(GemmOperands operands, Range rows, Range columns) {
  std::swap(operands.m, operands.n);
  std::swap(operands.a, operands.b);
  std::swap(operands.a_stride, operands.b_stride);
  GemmPart<FloatProduct, float, float, float, Turned>(operands, columns, rows)
      .Run();
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
  if (IsBetterTurned(operands, rows, columns)) {
    RunTurned(operands, rows, columns);
  } else if (operands.a_is_bfloat16) {
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
