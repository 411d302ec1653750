// Lays out operands for packed_gemm_part.cc, packed_gemm_tiles.h and
// decode_panels.cc in panels of 32-bit words: the words of one step along k lie
// side by side, so that a product reads memory in order. A word is a float, or
// a pair of bfloat16 neighbours along k.
//
// Only sources that are compiled once per CPU level may include this file.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "common/kernels/packed_gemm.h"
#include "common/kernels/simd_halves.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

inline int64_t LeastOf(int64_t a, int64_t b) { return a < b ? a : b; }

// Uninitialised words that it allocates.
class WordBuffer {
 public:
  explicit WordBuffer(int64_t size)
      : words_(static_cast<uint32_t*>(
            ::operator new(static_cast<size_t>(size) * sizeof(uint32_t),
                           std::align_val_t(64)))) {}
  ~WordBuffer() { ::operator delete(words_, std::align_val_t(64)); }
  WordBuffer(const WordBuffer&) = delete;
  WordBuffer& operator=(const WordBuffer&) = delete;

  uint32_t* words() const { return words_; }

 private:
  uint32_t* words_;
};

// Words of one float each. `Steps` loads kLanes steps of a line that is
// contiguous along k, from step `s` on; `Step` loads one of them; `Across`
// loads one step of kLanes neighbouring columns, where k is the row.
struct FloatWords {
  static constexpr int64_t kDepth = 1;  // entries along k in a word

  static Words Steps(const float* line, int64_t s) {
    return reinterpret_cast<Words>(Load<Floats>(line + s));
  }
  static uint32_t Step(const float* line, int64_t s, int64_t) {
    return BitsOfFloat(line[s]);
  }
  static Words Across(const float* row, int64_t, bool) {
    return reinterpret_cast<Words>(Load<Floats>(row));
  }
  static uint32_t AcrossOne(const float* row, int64_t, bool) {
    return BitsOfFloat(*row);
  }

  static Words Steps(const BFloat16* line, int64_t s) {
    return LoadHalves(line + s) << 16;
  }
  static uint32_t Step(const BFloat16* line, int64_t s, int64_t) {
    return BitsOfFloat(ToFloat(line[s]));
  }
  static Words Across(const BFloat16* row, int64_t, bool) {
    return LoadHalves(row) << 16;
  }
  static uint32_t AcrossOne(const BFloat16* row, int64_t, bool) {
    return BitsOfFloat(ToFloat(*row));
  }
};

// Words of two entries along k each, the first in the lower half, as a dot
// product of bfloat16 pairs takes them. Floats are rounded.
struct PairWords {
  static constexpr int64_t kDepth = 2;

#if defined(__AVX512BF16__)
  static Words Steps(const float* line, int64_t s) {
    const float* from = line + 2 * s;
    return reinterpret_cast<Words>(_mm512_cvtne2ps_pbh(
        reinterpret_cast<__m512>(Load<Floats>(from + kLanes)),
        reinterpret_cast<__m512>(Load<Floats>(from))));
  }
  static uint32_t Step(const float* line, int64_t s, int64_t depth) {
    const float second = 2 * s + 1 < depth ? line[2 * s + 1] : 0.0F;
    return Pair(FromFloat<BFloat16>(line[2 * s]), FromFloat<BFloat16>(second));
  }
#endif

  static Words Steps(const BFloat16* line, int64_t s) {
    return Load<Words>(line + 2 * s);
  }
  static uint32_t Step(const BFloat16* line, int64_t s, int64_t depth) {
    return Pair(line[2 * s], 2 * s + 1 < depth ? line[2 * s + 1] : BFloat16{0});
  }
  static Words Across(const BFloat16* row, int64_t stride, bool has_next) {
    const Words first = LoadHalves(row);
    return has_next ? first | LoadHalves(row + stride) << 16 : first;
  }
  static uint32_t AcrossOne(const BFloat16* row,
                            int64_t stride,
                            bool has_next) {
    return Pair(*row, has_next ? row[stride] : BFloat16{0});
  }

 private:
  static uint32_t Pair(BFloat16 first, BFloat16 second) {
    return first.bits | static_cast<uint32_t>(second.bits) << 16;
  }
};

// Transposes kLanes vectors: lane j of vector i becomes lane i of vector j.
// Each stage exchanges blocks of kHalf lanes between vectors i and i + kHalf.
template <int kHalf, int... kLane>
inline void SwapBlocks(Words* rows, std::integer_sequence<int, kLane...>) {
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kHalf) != 0) continue;
    const Words a = rows[i];
    const Words b = rows[i + kHalf];
    rows[i] = __builtin_shufflevector(
        a, b, ((kLane & kHalf) != 0 ? kLanes + kLane - kHalf : kLane)...);
    rows[i + kHalf] = __builtin_shufflevector(
        a, b, ((kLane & kHalf) != 0 ? kLanes + kLane : kLane + kHalf)...);
  }
}

inline void Transpose(Words* rows) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
  if constexpr (kLanes > 8) SwapBlocks<8>(rows, kAll);
  if constexpr (kLanes > 4) SwapBlocks<4>(rows, kAll);
  SwapBlocks<2>(rows, kAll);
  SwapBlocks<1>(rows, kAll);
}

// Packs words [begin, end) of a line of `depth` entries, pair by pair, with
// zeros behind the line's end.
template <typename T>
void PackPairs(
    const T* line, int64_t begin, int64_t end, int64_t depth, uint32_t* to) {
  int64_t s = begin;
  for (; s + kLanes <= end && s + kLanes <= depth / 2; s += kLanes) {
    Store(PairWords::Steps(line, s), to + s - begin);
  }
  for (; s < end; ++s) {
    to[s - begin] = 2 * s < depth ? PairWords::Step(line, s, depth) : 0;
  }
}

// Packs up to kLanes lines that are contiguous along k, `stride` apart, entries
// [0, depth) of each: line i of step s goes to panel[s * width + i]. Missing
// lines become zero. It writes kLanes words per step; the next step overwrites
// those beyond `width`, and the last step's words reach past the panel.
template <typename Format, typename T>
void PackLines(const T* lines,
               int64_t stride,
               int64_t num_lines,
               int64_t depth,
               int64_t width,
               uint32_t* panel) {
  const int64_t whole_steps = depth / Format::kDepth;
  int64_t s = 0;
  for (; s + kLanes <= whole_steps; s += kLanes) {
    Words block[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      block[i] = i < num_lines ? Format::Steps(lines + i * stride, s) : Words{};
    }
    Transpose(block);
    for (int64_t j = 0; j < kLanes; ++j) {
      Store(block[j], panel + (s + j) * width);
    }
  }
  for (; s * Format::kDepth < depth; ++s) {
    Words step = Words{};
    for (int64_t i = 0; i < num_lines; ++i) {
      step[i] = Format::Step(lines + i * stride, s, depth);
    }
    Store(step, panel + s * width);
  }
}

// Does what PackLines does with words of one float, for lines that lie across:
// entry s of line i is lines[s * stride + i]. The first `readable` entries of
// each row may be read; entries beyond `num_lines` are packed but not used.
template <typename T>
void PackTransposedLines(const T* lines,
                         int64_t stride,
                         int64_t num_lines,
                         int64_t readable,
                         int64_t depth,
                         int64_t width,
                         uint32_t* panel) {
  for (int64_t s = 0; s < depth; ++s) {
    const T* from = lines + s * stride;
    const Floats step =
        LoadPart(from, readable >= kLanes ? kLanes : num_lines, 0.0F);
    Store(step, panel + s * width);
  }
}

// Packs `num_columns` neighbouring columns of rows [0, depth), `stride` apart:
// column i of step s goes to panel[s * width + i]. Missing columns become zero.
template <typename Format, typename T>
void PackColumns(const T* rows,
                 int64_t stride,
                 int64_t num_columns,
                 int64_t depth,
                 int64_t width,
                 uint32_t* panel) {
  for (int64_t k = 0; k < depth; k += Format::kDepth) {
    const T* row = rows + k * stride;
    const bool has_next = k + 1 < depth;
    uint32_t* step = panel + k / Format::kDepth * width;
    int64_t i = 0;
    for (; i + kLanes <= num_columns; i += kLanes) {
      Store(Format::Across(row + i, stride, has_next), step + i);
    }
    for (; i < width; ++i) {
      step[i] =
          i < num_columns ? Format::AcrossOne(row + i, stride, has_next) : 0;
    }
  }
}

// Packs `num_columns` columns of B from column `column` on, entries [k, k +
// depth) of each, like PackColumns. `num_columns` is at most kWidth, a multiple
// of kLanes. T is B's element type.
template <typename Format, int64_t kWidth, typename T>
void PackPanelOfB(const GemmOperands& operands,
                  int64_t k,
                  int64_t depth,
                  int64_t column,
                  int64_t num_columns,
                  uint32_t* panel) {
  const auto* b = static_cast<const T*>(operands.b);
  const int64_t stride = operands.b_stride;
  if (!operands.b_is_transposed) {
    PackColumns<Format>(
        b + k * stride + column, stride, num_columns, depth, kWidth, panel);
    return;
  }
  for (int64_t half = 0; half < kWidth; half += kLanes) {
    const int64_t left = num_columns - half;
    PackLines<Format>(b + (column + half) * stride + k,
                      stride,
                      left < kLanes ? left : kLanes,
                      depth,
                      kWidth,
                      panel + half);
  }
}

}  // namespace
}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
