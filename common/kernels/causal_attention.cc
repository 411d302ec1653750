#include "common/kernels/causal_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "common/kernels/packed_gemm.h"
#include "common/kernels/parallel_for.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd {
namespace {

// A block has at most this many tokens, and scores that stay in the cache.
constexpr int64_t kBlockTokens = 64;
constexpr int64_t kLeastBlockTokens = 8;
constexpr int64_t kBlockScores = int64_t{1} << 18;

// Tokens of a block of a sequence with `keys` keys.
int64_t BlockTokens(int64_t keys, int64_t group) {
  return std::clamp(
      kBlockScores / (keys * group), kLeastBlockTokens, kBlockTokens);
}

// The rows of a block: for each of its tokens the query heads that share a
// key-value head, side by side.
struct Block {
  int64_t begin = 0;  // its first token, counted in queries
  int64_t tokens = 0;
  int64_t group = 0;    // query heads a key-value head
  int64_t visible = 0;  // keys up to its last token

  int64_t rows() const { return tokens * group; }
  // Keys that row `row` attends to.
  int64_t VisibleTo(int64_t row) const {
    return visible - tokens + 1 + row / group;
  }
};

// Where 1 / sqrt(D) goes: with float32 into the queries, with bfloat16, whose
// queries it would round, into the scores.
template <typename T>
constexpr bool kScalesScores = std::is_same_v<T, BFloat16>;
template <typename T>
float QueryScale(float scale) {
  return kScalesScores<T> ? 1.0F : scale;
}
template <typename T>
float ScoreScale(float scale) {
  return kScalesScores<T> ? scale : 1.0F;
}

// One key-value head of a sequence and its query heads.
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
        block_tokens_(BlockTokens(sequence.keys, group_)) {}

  int64_t dim() const { return dim_; }
  int64_t index() const { return index_; }
  const AttentionSequenceOf<T>& sequence() const { return sequence_; }

  template <typename Body>
  void ForEachBlock(const Body& body) const {
    const int64_t past = sequence_.keys - sequence_.queries;
    for (int64_t t = 0; t < sequence_.queries; t += block_tokens_) {
      const int64_t tokens = std::min(block_tokens_, sequence_.queries - t);
      body(Block{t, tokens, group_, past + t + tokens});
    }
  }

  // body(heads of the row, row) for each row of `block` in `matrix`.
  template <typename Number, typename Body>
  void ForEachRow(const Block& block,
                  const HeadMatrix<Number>& matrix,
                  const Body& body) const {
    for (int64_t row = 0; row < block.rows(); ++row) {
      body(
          matrix.At(block.begin + row / group_, index_ * group_ + row % group_),
          row);
    }
  }

  // The rows of `block` times `scale`, side by side.
  void Gather(const Block& block,
              const HeadMatrix<const T>& matrix,
              float scale,
              float* rows) const {
    const auto widen = TrainingRows().Of<T>().widen;
    ForEachRow(block, matrix, [&](const T* from, int64_t row) {
      widen(from, dim_, scale, rows + row * dim_);
    });
  }

  // The other way round.
  void Scatter(const Block& block,
               const float* rows,
               float scale,
               const HeadMatrix<T>& matrix) const {
    const auto narrow = TrainingRows().Of<T>().narrow;
    ForEachRow(block, matrix, [&](T* to, int64_t row) {
      narrow(rows + row * dim_, dim_, scale, to);
    });
  }

  float* LogSumExp(const Block& block, int64_t row) const {
    return sequence_.logsumexp + (block.begin + row / group_) * query_heads_ +
           index_ * group_ + row % group_;
  }

  // c [rows, visible] = rows [rows, dim] heads^T of k or v.
  void MultiplyByHeads(const Block& block,
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

  // c [rows, dim] = weights [rows, visible] heads of k or v.
  void Combine(const Block& block,
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

  // sums [visible, dim] += weights^T [visible, rows] rows.
  void AddOuterProducts(const Block& block,
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

// Numbers of a thread's buffers for the largest block of all sequences.
struct BlockSizes {
  int64_t rows = 0;
  int64_t scores = 0;
  int64_t keys = 0;

  template <typename T>
  BlockSizes(const AttentionHeads& heads,
             std::span<const AttentionSequenceOf<T>> sequences) {
    const int64_t group = heads.query / heads.key_value;
    for (const AttentionSequenceOf<T>& sequence : sequences) {
      keys = std::max(keys, sequence.keys);
      const int64_t block_rows =
          std::min(sequence.queries, BlockTokens(sequence.keys, group)) * group;
      rows = std::max(rows, block_rows);
      scores = std::max(scores, block_rows * sequence.keys);
    }
  }
};

// Calls body(head group, index of its sequence, buffers) for each key-value
// head of each sequence; each thread makes its own Buffers(sizes, dim).
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
  const BlockSizes sizes(heads, sequences);
  std::atomic<int64_t> next = 0;
  ParallelFor(static_cast<int>(threads), threads, [&](int64_t) {
    Buffers buffers(sizes, heads.dim);
    for (int64_t i = next++; i < count; i = next++) {
      const auto s = static_cast<size_t>(i / heads.key_value);
      body(HeadGroup<T>(heads, sequences[s], i % heads.key_value), s, buffers);
    }
  });
}

struct ForwardBuffers {
  ForwardBuffers(const BlockSizes& sizes, int64_t dim)
      : rows(static_cast<size_t>(sizes.rows * dim)),
        scores(static_cast<size_t>(sizes.scores)) {}
  std::vector<float> rows, scores;
};

template <typename T>
void AttendGroup(const HeadGroup<T>& heads,
                 float scale,
                 ForwardBuffers& buffers) {
  const TrainingRowKernel& kernel = TrainingRows();
  const AttentionSequenceOf<T>& sequence = heads.sequence();
  heads.ForEachBlock([&](const Block& block) {
    heads.Gather(block, sequence.q, QueryScale<T>(scale), buffers.rows.data());
    heads.MultiplyByHeads(
        block, buffers.rows.data(), sequence.k, buffers.scores.data());
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* scores = buffers.scores.data() + row * block.visible;
      const int64_t visible = block.VisibleTo(row);
      *heads.LogSumExp(block, row) =
          kernel.soften(scores, visible, ScoreScale<T>(scale));
      std::fill(scores + visible, scores + block.visible, 0.0F);
    }
    heads.Combine(
        block, buffers.scores.data(), sequence.v, buffers.rows.data());
    heads.Scatter(block, buffers.rows.data(), 1.0F, sequence.out);
  });
}

struct BackwardBuffers {
  BackwardBuffers(const BlockSizes& sizes, int64_t dim)
      : rows(static_cast<size_t>(sizes.rows * dim)),
        grad_rows(rows.size()),
        scores(static_cast<size_t>(sizes.scores)),
        grad_scores(scores.size()),
        grad_keys(static_cast<size_t>(sizes.keys * dim)),
        grad_values(grad_keys.size()) {}
  std::vector<float> rows, grad_rows, scores, grad_scores;
  std::vector<float> grad_keys, grad_values;  // sums over the blocks
};

template <typename T>
float Dot(const T* a, const float* b, int64_t size) {
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(ToFloat(a[i])) * b[i];
  }
  return static_cast<float>(sum);
}

// Head `index` of `tokens` tokens becomes `scale` times `sums`.
template <typename T>
void WriteHeads(const std::vector<float>& sums,
                int64_t tokens,
                int64_t index,
                int64_t dim,
                float scale,
                const HeadMatrix<T>& heads) {
  const auto narrow = TrainingRows().Of<T>().narrow;
  for (int64_t t = 0; t < tokens; ++t) {
    narrow(sums.data() + t * dim, dim, scale, heads.At(t, index));
  }
}

template <typename T>
void AttendGroupBackward(const HeadGroup<T>& heads,
                         const AttentionSequenceGradientsOf<T>& gradients,
                         float scale,
                         BackwardBuffers& buffers) {
  const TrainingRowKernel& kernel = TrainingRows();
  const AttentionSequenceOf<T>& sequence = heads.sequence();
  const int64_t dim = heads.dim();
  const int64_t key_numbers = sequence.keys * dim;
  std::fill_n(buffers.grad_keys.data(), key_numbers, 0.0F);
  std::fill_n(buffers.grad_values.data(), key_numbers, 0.0F);
  float* rows = buffers.rows.data();
  float* grad_rows = buffers.grad_rows.data();
  heads.ForEachBlock([&](const Block& block) {
    float* weights = buffers.scores.data();
    float* grad_scores = buffers.grad_scores.data();
    heads.Gather(block, sequence.q, QueryScale<T>(scale), rows);
    heads.Gather(block, gradients.out, 1.0F, grad_rows);
    heads.MultiplyByHeads(block, rows, sequence.k, weights);
    heads.MultiplyByHeads(block, grad_rows, sequence.v, grad_scores);
    heads.ForEachRow(block, sequence.out, [&](const T* out, int64_t row) {
      float* weight = weights + row * block.visible;
      float* grad_score = grad_scores + row * block.visible;
      const int64_t visible = block.VisibleTo(row);
      kernel.soften_backward(*heads.LogSumExp(block, row),
                             Dot(out, grad_rows + row * dim, dim),
                             visible,
                             ScoreScale<T>(scale),
                             weight,
                             grad_score);
      std::fill(weight + visible, weight + block.visible, 0.0F);
      std::fill(grad_score + visible, grad_score + block.visible, 0.0F);
    });
    heads.AddOuterProducts(
        block, weights, grad_rows, buffers.grad_values.data());
    heads.AddOuterProducts(block, grad_scores, rows, buffers.grad_keys.data());
    heads.Combine(block, grad_scores, sequence.k, rows);
    heads.Scatter(block, rows, scale, gradients.q);
  });
  WriteHeads(buffers.grad_values,
             sequence.keys,
             heads.index(),
             dim,
             1.0F,
             gradients.v);
  // In float32 the rows of the products were scaled already.
  WriteHeads(buffers.grad_keys,
             sequence.keys,
             heads.index(),
             dim,
             ScoreScale<T>(scale),
             gradients.k);
}

float ScaleOf(const AttentionHeads& heads) {
  return 1.0F / std::sqrt(static_cast<float>(heads.dim));
}

template <typename T>
void Attend(int num_threads,
            const AttentionHeads& heads,
            std::span<const AttentionSequenceOf<T>> sequences) {
  ForEachHeadGroup<ForwardBuffers, T>(
      num_threads,
      heads,
      sequences,
      [&](const HeadGroup<T>& group, size_t, ForwardBuffers& buffers) {
        AttendGroup(group, ScaleOf(heads), buffers);
      });
}

template <typename T>
void AttendBackward(
    int num_threads,
    const AttentionHeads& heads,
    std::span<const AttentionSequenceOf<T>> sequences,
    std::span<const AttentionSequenceGradientsOf<T>> gradients) {
  ForEachHeadGroup<BackwardBuffers, T>(
      num_threads,
      heads,
      sequences,
      [&](const HeadGroup<T>& group, size_t i, BackwardBuffers& buffers) {
        AttendGroupBackward(group, gradients[i], ScaleOf(heads), buffers);
      });
}

}  // namespace

void CausalAttention(int num_threads,
                     const AttentionHeads& heads,
                     std::span<const AttentionSequence> sequences) {
  Attend(num_threads, heads, sequences);
}

void CausalAttention(int num_threads,
                     const AttentionHeads& heads,
                     std::span<const HalfAttentionSequence> sequences) {
  Attend(num_threads, heads, sequences);
}

void CausalAttentionBackward(
    int num_threads,
    const AttentionHeads& heads,
    std::span<const AttentionSequence> sequences,
    std::span<const AttentionSequenceGradients> gradients) {
  AttendBackward(num_threads, heads, sequences, gradients);
}

void CausalAttentionBackward(
    int num_threads,
    const AttentionHeads& heads,
    std::span<const HalfAttentionSequence> sequences,
    std::span<const HalfAttentionSequenceGradients> gradients) {
  AttendBackward(num_threads, heads, sequences, gradients);
}

}  // namespace dapd
