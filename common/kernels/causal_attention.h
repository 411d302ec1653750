// Grouped-query causal attention over whole sequences on the CPU, forward and
// backward: softmax(q k^T / sqrt(D)) v by blocks of queries. The backward pass
// computes the scores of a block again (Dao et al. 2022). Keys behind a block's
// last query are skipped. The query heads that share keys are further rows of
// the same products (packed_gemm.h).
//
// T is float or BFloat16. Scores, their softmax and all sums are float32 in
// both. With bfloat16, the products with k and v multiply bfloat16 pairs, so
// probabilities and their gradients are rounded once before them, and results
// are rounded at the end.
//
// A token's numbers depend on its sequence only, neither on the number of
// threads nor on the other sequences of the call.
//
// Slow twins: LibTorch's attention (model/reference/attention.cc) and, in the
// tests, the definition in double precision.
#pragma once

#include <cstdint>
#include <span>

#include "common/kernels/bfloat16.h"

namespace dapd {

// Numbers of heads and their size; `key_value` divides `query`.
struct AttentionHeads {
  int64_t query = 0;
  int64_t key_value = 0;
  int64_t dim = 0;
};

// The heads of a sequence's tokens: head h of token t begins at data + t
// token_stride + h head_stride. T may be const.
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

// Gradients of a sequence. The caller fills the gradient of `out`.
template <typename T>
struct AttentionSequenceGradientsOf {
  HeadMatrix<const T> out;
  HeadMatrix<T> q, k, v;
};
using AttentionSequenceGradients = AttentionSequenceGradientsOf<float>;
using HalfAttentionSequenceGradients = AttentionSequenceGradientsOf<BFloat16>;

// Writes the gradients of q, k and v. `sequences` must be as CausalAttention
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
