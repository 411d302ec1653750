#include "common/kernels/causal_attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "common/kernels/attention_blocks.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd {
namespace {

// The factor 1 / sqrt(D) goes into the queries in float32. In bfloat16 it would
// round the queries, so it goes into the scores.
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

struct ForwardBuffers {
  ForwardBuffers(const BlockBufferSizes& sizes, int64_t dim)
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
  heads.ForEachBlock([&](const QueryBlock& block) {
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
  BackwardBuffers(const BlockBufferSizes& sizes, int64_t dim)
      : rows(static_cast<size_t>(sizes.rows * dim)),
        grad_rows(rows.size()),
        scores(static_cast<size_t>(sizes.scores)),
        grad_scores(scores.size()),
        grad_keys(static_cast<size_t>(sizes.keys * dim)),
        grad_values(grad_keys.size()) {}
  std::vector<float> rows, grad_rows, scores, grad_scores;
  std::vector<float> grad_keys, grad_values;  // sums over the blocks
};

// Writes `scale` times `sums` into head `index` of `tokens` tokens.
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
  heads.ForEachBlock([&](const QueryBlock& block) {
    float* weights = buffers.scores.data();
    float* grad_scores = buffers.grad_scores.data();
    heads.Gather(block, sequence.q, QueryScale<T>(scale), rows);
    heads.Gather(block, gradients.out, 1.0F, grad_rows);
    heads.MultiplyByHeads(block, rows, sequence.k, weights);
    heads.MultiplyByHeads(block, grad_rows, sequence.v, grad_scores);
    for (int64_t row = 0; row < block.rows(); ++row) {
      float* weight = weights + row * block.visible;
      float* grad_score = grad_scores + row * block.visible;
      const int64_t visible = block.VisibleTo(row);
      kernel.soften_backward(*heads.LogSumExp(block, row),
                             visible,
                             ScoreScale<T>(scale),
                             weight,
                             grad_score);
      std::fill(weight + visible, weight + block.visible, 0.0F);
      std::fill(grad_score + visible, grad_score + block.visible, 0.0F);
    }
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
  // In float32 the queries that entered these products were scaled already.
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
