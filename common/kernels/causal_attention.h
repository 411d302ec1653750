// Grouped-query causal attention over whole sequences on the CPU, forward and
// backward: softmax(q k^T / sqrt(D)) v by blocks of queries, whose scores are
// computed again in the backward pass (Dao et al. 2022). Keys behind a block's
// last query are not looked at; the query heads that share keys are more rows
// of the same products (packed_gemm.h).
//
// T is float or BFloat16. Scores, their softmax and all sums are float32 in
// both; of bfloat16 the products with k and v are those of pairs, for which
// probabilities and their gradients are rounded once, and results are rounded
// at the end.
//
// A token's numbers depend on its sequence only, neither on the number of
// threads nor on what else is computed with it.
//
// Slow twins: LibTorch's attention (model/reference/attention.cc) and, in the
// tests, the definition in double precision.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/bfloat16.h"

namespace dapd {

// Query heads, key-value heads that divide them, and numbers a head.
struct AttentionHeads {
  int64_t query = 0;
  int64_t key_value = 0;
  int64_t dim = 0;
};

// The heads of a sequence's tokens: those of token t and head h begin at
// data + t token_stride + h head_stride. T may be const.
template <typename T>
struct HeadMatrix {
  T* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  T* At(int64_t token, int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
};

// The queries are the last `queries` of a sequence's `keys` tokens.
template <typename T>
struct AttentionSequenceOf {
  int64_t queries = 0;
  int64_t keys = 0;
  HeadMatrix<const T> q;       // [queries]
  HeadMatrix<const T> k;       // [keys]
  HeadMatrix<const T> v;       // [keys]
  HeadMatrix<T> out;           // [queries]
  float* logsumexp = nullptr;  // [queries, query heads], of the scaled scores
};
using AttentionSequence = AttentionSequenceOf<float>;
using HalfAttentionSequence = AttentionSequenceOf<BFloat16>;

// Writes `out` and `logsumexp` of each sequence.
void CausalAttention(int num_threads,
                     const AttentionHeads& heads,
                     std::span<const AttentionSequence> sequences);
void CausalAttention(int num_threads,
                     const AttentionHeads& heads,
                     std::span<const HalfAttentionSequence> sequences);

// Gradients of a sequence; that of `out` is given.
template <typename T>
struct AttentionSequenceGradientsOf {
  HeadMatrix<const T> out;
  HeadMatrix<T> q, k, v;
};
using AttentionSequenceGradients = AttentionSequenceGradientsOf<float>;
using HalfAttentionSequenceGradients = AttentionSequenceGradientsOf<BFloat16>;

// Writes the gradients of q, k and v, where `sequences` are as CausalAttention
// left them.
void CausalAttentionBackward(
    int num_threads,
    const AttentionHeads& heads,
    std::span<const AttentionSequence> sequences,
    std::span<const AttentionSequenceGradients> gradients);
void CausalAttentionBackward(
    int num_threads,
    const AttentionHeads& heads,
    std::span<const HalfAttentionSequence> sequences,
    std::span<const HalfAttentionSequenceGradients> gradients);

}  // namespace dapd
