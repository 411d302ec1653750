// Helpers with which causal_attention.cc traverses its sequences. The key-value
// heads are divided among the threads; each thread processes a head by blocks
// of queries and computes their products with packed_gemm.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "common/kernels/bfloat16.h"
#include "common/kernels/causal_attention.h"
#include "common/kernels/packed_gemm.h"
#include "common/kernels/parallel_for.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd {

// Returns how many tokens a block has in a sequence with `keys` keys: as many
// as keep the block's scores in the cache, within bounds.
inline int64_t TokensOfBlock(int64_t keys, int64_t group) {
  constexpr int64_t kScores = int64_t{1} << 18;
  return std::clamp<int64_t>(kScores / (keys * group), 8, 64);
}

// A block's rows: for each of its tokens, the query heads that share a
// key-value head, side by side.
struct QueryBlock {
  int64_t begin = 0;  // its first token, counted in queries
  int64_t tokens = 0;
  int64_t group = 0;    // query heads a key-value head
  int64_t visible = 0;  // keys up to its last token

  int64_t rows() const { return tokens * group; }
  // Returns how many keys row `row` attends to.
  int64_t VisibleTo(int64_t row) const {
    return visible - tokens + 1 + row / group;
  }
};

// A key-value head of a sequence, with its query heads.
template <typename T>
class HeadGroup {
 public:
  HeadGroup(const AttentionHeads& heads,
            const AttentionSequenceOf<T>& sequence,
            int64_t index)
      : sequence_(sequence),
        index_(index),
        group_(heads.query / heads.key_value),
        query_heads_(heads.query),
        dim_(heads.dim),
        block_tokens_(TokensOfBlock(sequence.keys, group_)) {}

  int64_t dim() const { return dim_; }
  int64_t index() const { return index_; }
  const AttentionSequenceOf<T>& sequence() const { return sequence_; }

  template <typename Body>
  void ForEachBlock(const Body& body) const {
    const int64_t past = sequence_.keys - sequence_.queries;
    for (int64_t t = 0; t < sequence_.queries; t += block_tokens_) {
      const int64_t tokens = std::min(block_tokens_, sequence_.queries - t);
      body(QueryBlock{t, tokens, group_, past + t + tokens});
    }
  }

  // Calls body(heads of the row, row) for each row of `block` in `matrix`.
  template <typename Number, typename Body>
  void ForEachRow(const QueryBlock& block,
                  const HeadMatrix<Number>& matrix,
                  const Body& body) const {
    for (int64_t row = 0; row < block.rows(); ++row) {
      body(
          matrix.At(block.begin + row / group_, index_ * group_ + row % group_),
          row);
    }
  }

  // Copies the rows of `block`, times `scale`, side by side.
  void Gather(const QueryBlock& block,
              const HeadMatrix<const T>& matrix,
              float scale,
              float* rows) const {
    const auto widen = TrainingRows().Of<T>().widen;
    ForEachRow(block, matrix, [&](const T* from, int64_t row) {
      widen(from, dim_, scale, rows + row * dim_);
    });
  }

  // Copies gathered rows back into the heads.
  void Scatter(const QueryBlock& block,
               const float* rows,
               float scale,
               const HeadMatrix<T>& matrix) const {
    const auto narrow = TrainingRows().Of<T>().narrow;
    ForEachRow(block, matrix, [&](T* to, int64_t row) {
      narrow(rows + row * dim_, dim_, scale, to);
    });
  }

  float* LogSumExp(const QueryBlock& block, int64_t row) const {
    return sequence_.logsumexp + (block.begin + row / group_) * query_heads_ +
           index_ * group_ + row % group_;
  }

  // Computes c [rows, visible] = rows [rows, dim] heads^T, where `heads` is k
  // or v.
  void MultiplyByHeads(const QueryBlock& block,
                       const float* rows,
                       const HeadMatrix<const T>& heads,
                       float* c) const {
    PackedGemm({.m = block.rows(),
                .n = block.visible,
                .k = dim_,
                .a = rows,
                .a_stride = dim_,
                .b = heads.At(0, index_),
                .b_stride = heads.token_stride,
                .b_is_bfloat16 = std::is_same_v<T, BFloat16>,
                .b_is_transposed = true,
                .c = c,
                .c_stride = block.visible},
               /*num_threads=*/1);
  }

  // Computes c [rows, dim] = weights [rows, visible] heads, where `heads` is k
  // or v.
  void Combine(const QueryBlock& block,
               const float* weights,
               const HeadMatrix<const T>& heads,
               float* c) const {
    PackedGemm({.m = block.rows(),
                .n = dim_,
                .k = block.visible,
                .a = weights,
                .a_stride = block.visible,
                .b = heads.At(0, index_),
                .b_stride = heads.token_stride,
                .b_is_bfloat16 = std::is_same_v<T, BFloat16>,
                .c = c,
                .c_stride = dim_},
               1);
  }

  // Computes sums [visible, dim] += weights^T [visible, rows] rows.
  void AddOuterProducts(const QueryBlock& block,
                        const float* weights,
                        const float* rows,
                        float* sums) const {
    PackedGemm({.m = block.visible,
                .n = dim_,
                .k = block.rows(),
                .a = weights,
                .a_stride = block.visible,
                .a_is_transposed = true,
                .b = rows,
                .b_stride = dim_,
                .c = sums,
                .c_stride = dim_,
                .adds = true},
               1);
  }

 private:
  const AttentionSequenceOf<T>& sequence_;
  int64_t index_;
  int64_t group_;
  int64_t query_heads_;
  int64_t dim_;
  int64_t block_tokens_;
};

// Sizes of a thread's buffers, in numbers, for the largest block of all
// sequences.
struct BlockBufferSizes {
  int64_t rows = 0;
  int64_t scores = 0;
  int64_t keys = 0;

  template <typename T>
  BlockBufferSizes(const AttentionHeads& heads,
                   std::span<const AttentionSequenceOf<T>> sequences) {
    const int64_t group = heads.query / heads.key_value;
    for (const AttentionSequenceOf<T>& sequence : sequences) {
      keys = std::max(keys, sequence.keys);
      const int64_t block_rows =
          std::min(sequence.queries, TokensOfBlock(sequence.keys, group)) *
          group;
      rows = std::max(rows, block_rows);
      scores = std::max(scores, block_rows * sequence.keys);
    }
  }
};

// Calls body(head group, index of its sequence, buffers) for each key-value
// head of each sequence. Each thread makes its own Buffers(sizes, dim).
template <typename Buffers, typename T, typename Body>
void ForEachHeadGroup(int num_threads,
                      const AttentionHeads& heads,
                      std::span<const AttentionSequenceOf<T>> sequences,
                      const Body& body) {
  const int64_t count =
      static_cast<int64_t>(sequences.size()) * heads.key_value;
  double products = 0.0;
  for (const AttentionSequenceOf<T>& sequence : sequences) {
    products += static_cast<double>(sequence.queries * sequence.keys) *
                static_cast<double>(heads.query * heads.dim);
  }
  const int64_t threads = std::min<int64_t>(
      ThreadsWorth(num_threads, ProductNanoseconds(products, 0.0)), count);
  const BlockBufferSizes sizes(heads, sequences);
  std::atomic<int64_t> next = 0;
  ParallelFor(static_cast<int>(threads), threads, [&](int64_t) {
    Buffers buffers(sizes, heads.dim);
    for (int64_t i = next++; i < count; i = next++) {
      const auto s = static_cast<size_t>(i / heads.key_value);
      body(HeadGroup<T>(heads, sequences[s], i % heads.key_value), s, buffers);
    }
  });
}

}  // namespace dapd
