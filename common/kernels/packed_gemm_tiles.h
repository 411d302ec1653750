// Computes a part of PackedGemm by tiles (tile_block.h).
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include "common/kernels/packed_gemm_cpu_levels.h"
#include "common/kernels/packed_gemm_pack.h"
#include "common/kernels/packed_gemm_result.h"
#include "common/kernels/tile_block.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

constexpr int64_t kTileDepthBlock = 1024;
// Words of B that are packed at a time: a share of the second-level cache.
constexpr int64_t kTileBlockWords = int64_t{1} << 17;

// A and C are the element types of A and C. B is bfloat16, and A is not
// transposed.
template <typename Tiles, typename A, typename C>
class TilePart {
 public:
  TilePart(const GemmOperands& operands,
           int64_t row_begin,
           int64_t row_end,
           int64_t column_begin,
           int64_t column_end)
      : op_(operands),
        row_begin_(row_begin),
        row_end_(row_end),
        column_begin_(column_begin),
        column_end_(column_end),
        depth_(op_.k <= kGemmWholeDepth ? op_.k : kTileDepthBlock),
        words_(RoundUp((depth_ + 1) / 2, kTileWords)),
        panels_(
            LeastOf(RoundUp(column_end - column_begin, kTileBlock) / kTileBlock,
                    kTileBlockWords / (words_ * kTileBlock) + 1)),
        packed_a_(RoundUp(row_end - row_begin, kTileBlock) * words_),
        packed_b_(panels_ * kTileBlock * words_ + kLanes) {}

  void Run() {
    Tiles tiles(kTileBlock);
    for (int64_t k = 0; k < op_.k; k += depth_) {
      const int64_t depth = LeastOf(depth_, op_.k - k);
      PackA(k, depth);
      for (int64_t j = column_begin_; j < column_end_;
           j += panels_ * kTileBlock) {
        const int64_t end = LeastOf(j + panels_ * kTileBlock, column_end_);
        PackB(k, depth, j, end);
        MultiplyBlock(j, end, depth, k == 0 && !op_.adds, &tiles);
      }
    }
  }

 private:
  static int64_t RoundUp(int64_t size, int64_t unit) {
    return (size + unit - 1) / unit * unit;
  }

  // Packs A row by row, `words_` apart, with zeros for what is missing.
  void PackA(int64_t k, int64_t depth) {
    const auto* a = static_cast<const A*>(op_.a);
    uint32_t* to = packed_a_.words();
    const int64_t rows = RoundUp(row_end_ - row_begin_, kTileBlock);
    for (int64_t row = row_begin_; row < row_begin_ + rows; ++row) {
      const bool is_missing = row >= row_end_;
      PackPairs(is_missing ? a : a + row * op_.a_stride + k,
                0,
                words_,
                is_missing ? 0 : depth,
                to);
      to += words_;
    }
  }

  // Packs B in panels of kTileBlock columns, step by step.
  void PackB(int64_t k, int64_t depth, int64_t begin, int64_t end) {
    uint32_t* panel = packed_b_.words();
    for (int64_t j = begin; j < end; j += kTileBlock) {
      const int64_t columns = LeastOf(kTileBlock, end - j);
      PackPanelOfB<PairWords, kTileBlock, BFloat16>(
          op_, k, depth, j, columns, panel);
      for (int64_t i = (depth + 1) / 2 * kTileBlock; i < words_ * kTileBlock;
           ++i) {
        panel[i] = 0;
      }
      panel += kTileBlock * words_;
    }
  }

  void MultiplyBlock(
      int64_t begin, int64_t end, int64_t depth, bool is_first, Tiles* tiles) {
    // The compiler does not see that the tile instructions read memory.
    __asm__ volatile("" ::: "memory");
    const int64_t words = RoundUp((depth + 1) / 2, kTileWords);
    alignas(64) float block[kTileBlock * kTileBlock];
    const uint32_t* a = packed_a_.words();
    for (int64_t i = row_begin_; i < row_end_; i += kTileBlock) {
      const uint32_t* b = packed_b_.words();
      for (int64_t j = begin; j < end; j += kTileBlock) {
        tiles->Clear();
        for (int64_t s = 0; s < words; s += kTileWords) {
          tiles->MultiplyAdd(a + s, words_, b + s * kTileBlock);
        }
        tiles->Store(block, kTileBlock);
        PutBlock(block,
                 kTileBlock,
                 TileOfC<C>{.c = static_cast<C*>(op_.c) + i * op_.c_stride + j,
                            .stride = op_.c_stride,
                            .rows = LeastOf(kTileBlock, row_end_ - i),
                            .columns = LeastOf(kTileBlock, end - j),
                            .is_first = is_first});
        b += kTileBlock * words_;
      }
      a += kTileBlock * words_;
    }
  }

  const GemmOperands& op_;
  const int64_t row_begin_;
  const int64_t row_end_;
  const int64_t column_begin_;
  const int64_t column_end_;
  const int64_t depth_;   // entries along k that are packed at a time
  const int64_t words_;   // words that hold these entries, in whole tiles
  const int64_t panels_;  // panels of B that are packed at a time
  WordBuffer packed_a_;
  WordBuffer packed_b_;
};

template <typename Tiles, typename A>
void RunTiles(
    const GemmOperands& op, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  if (op.c_is_bfloat16) {
    TilePart<Tiles, A, BFloat16>(op, r0, r1, c0, c1).Run();
  } else {
    TilePart<Tiles, A, float>(op, r0, r1, c0, c1).Run();
  }
}

// Implements PackedGemmKernel::run. The level below computes products without
// pairs.
template <typename Tiles>
void RunTilePart(const GemmOperands& op,
                 int64_t row_begin,
                 int64_t row_end,
                 int64_t column_begin,
                 int64_t column_end) {
  if (!op.b_is_bfloat16 || op.a_is_transposed) {
    avx512_bf16::MakePackedGemmKernel().run(
        op, row_begin, row_end, column_begin, column_end);
  } else if (op.a_is_bfloat16) {
    RunTiles<Tiles, BFloat16>(op, row_begin, row_end, column_begin, column_end);
  } else {
    RunTiles<Tiles, float>(op, row_begin, row_end, column_begin, column_end);
  }
}

template <typename Tiles>
PackedGemmKernel TileKernel() {
  return {kTileBlock, kTileBlock, RunTilePart<Tiles>};
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
