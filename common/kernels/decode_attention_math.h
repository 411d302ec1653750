// Split-KV decode attention: the query heads of one new token over a KV cache.
//
// The tokens of a sequence are cut at fixed positions, every kSplitTokens, so
// that a sequence's sums do not depend on its neighbours or on the batch. Each
// split gives a maximum, a sum of exponentials and an unnormalised output; a
// final step combines them (Flash-Decoding; Milakov & Gimelshein 2018 for the
// online softmax). All sums are float32.
//
// The float32 kernel adds in this order, which its copy for the host repeats:
//   scores   8 lanes share a key; lane i takes the chunks i, i + 8, ... of 8
//            dimensions; the lanes' sums are added as a butterfly
//   softmax  a warp takes a query head; lane i takes the tokens i, i + 32, ...
//   values   NumValueGroups(head_dim) groups of threads; group i takes the
//            tokens i, i + groups, ...; then the groups are added in order
//   combined the splits' weights are exp(max_i - max); lane i of a warp adds
//            the splits i, i + 32, ...; the outputs are added in order
// The bfloat16 kernel leaves the order within a product to the tensor cores.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/kernels/bfloat16.h"

namespace dapd {

inline constexpr int kSplitTokens = 128;
inline constexpr int kAttentionThreads = 256;
inline constexpr int kLanesPerKey = 8;
inline constexpr int kChunk = 8;  // dimensions in one 16-byte load of bfloat16
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxHeadGroup = 8;  // query heads that share a KV head
inline constexpr int kMaxSplits = 512;   // of a sequence: 65,536 tokens

// Returns whether the kernels take this geometry.
DAPD_HOST_DEVICE inline bool FitsDecodeAttention(int64_t heads,
                                                 int64_t kv_heads,
                                                 int64_t head_dim) {
  return kv_heads > 0 && heads % kv_heads == 0 &&
         heads / kv_heads <= kMaxHeadGroup && head_dim % kChunk == 0 &&
         head_dim > 0 && head_dim <= kMaxHeadDim;
}

DAPD_HOST_DEVICE inline int64_t NumSplits(int64_t tokens) {
  return (tokens + kSplitTokens - 1) / kSplitTokens;
}

// Returns the floats that a launch over `rows` rows works in: for each split of
// each head a maximum, a sum and an output.
DAPD_HOST_DEVICE inline int64_t DecodeAttentionScratch(int64_t rows,
                                                       int64_t heads,
                                                       int64_t head_dim,
                                                       int64_t max_tokens) {
  return rows * heads * NumSplits(max_tokens) * (2 + head_dim);
}

// A thread of the value pass owns two dimensions of the tokens of its group.
DAPD_HOST_DEVICE inline int NumValueGroups(int head_dim) {
  return kAttentionThreads / (head_dim / 2);
}

// Returns sum + q . k over one chunk.
DAPD_HOST_DEVICE inline float AddChunkDot(float sum,
                                          const float* q,
                                          const float* k) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < kChunk; ++i) sum = fmaf(q[i], k[i], sum);
  return sum;
}

// The softmax of one split of one query head, not yet combined.
struct SoftmaxPart {
  float max;  // of its scores
  float sum;  // of exp(score - max)
};

}  // namespace dapd
