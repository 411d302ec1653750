// Split-KV decode attention: the query heads of one new token over a KV cache.
//
// The KV cache has pages of kPageTokens tokens, and kSplitPages pages are a
// split. Both are cut at fixed positions of the sequence, so that its sums
// depend neither on its neighbours nor on the blocks that compute them. A page
// gives a maximum, a sum of exponentials and an unnormalised output. Pages are
// added to their split in order, and splits to the sequence in order, each time
// with the larger maximum of the two (FoldPart: the online softmax of Milakov &
// Gimelshein 2018; Flash-Decoding). So a block that has all pages of a split
// keeps one result for them, and where several blocks share a split, whoever
// reads their pages later adds the same numbers in the same order. All sums are
// float32.
//
// The float32 kernel adds in this order, which its copy for the host repeats:
//   scores   8 lanes share a key; lane i takes the chunks i, i + 8, ... of 8
//            dimensions; the lanes' sums are added as a butterfly
//   softmax  a warp takes a query head; lane i takes the tokens i, i + 32, ...
//            of a page
//   values   NumValueGroups(head_dim) groups of threads; group i takes the
//            tokens i, i + groups, ... of a page; then the groups are added in
//            order
// The bfloat16 kernel leaves the order within a product to the tensor cores.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/kernels/bfloat16.h"

namespace dapd {

inline constexpr int kPageTokens = 128;
inline constexpr int kSplitPages = 8;  // 1,024 tokens
inline constexpr int kAttentionThreads = 256;
inline constexpr int kLanesPerKey = 8;
inline constexpr int kChunk = 8;  // dimensions in one 16-byte load of bfloat16
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxHeadGroup = 8;  // query heads that share a KV head
inline constexpr int kMaxPages = 512;    // of a sequence: 65,536 tokens

// Returns whether the kernels take this geometry.
DAPD_HOST_DEVICE inline bool FitsDecodeAttention(int64_t heads,
                                                 int64_t kv_heads,
                                                 int64_t head_dim) {
  return kv_heads > 0 && heads % kv_heads == 0 &&
         heads / kv_heads <= kMaxHeadGroup && head_dim % kChunk == 0 &&
         head_dim > 0 && head_dim <= kMaxHeadDim;
}

DAPD_HOST_DEVICE inline int64_t NumPages(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

// Returns the floats that a launch over `rows` rows works in: for each page of
// each head a maximum, a sum and an output.
DAPD_HOST_DEVICE inline int64_t DecodeAttentionScratch(int64_t rows,
                                                       int64_t heads,
                                                       int64_t head_dim,
                                                       int64_t max_tokens) {
  return rows * heads * NumPages(max_tokens) * (2 + head_dim);
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

// The softmax of some tokens of one query head.
struct SoftmaxPart {
  float max;  // of its scores
  float sum;  // of exp(score - max)
};

DAPD_HOST_DEVICE inline SoftmaxPart NoTokens() { return {-INFINITY, 0.0F}; }

// Factors of two unnormalised outputs that are added.
struct FoldFactors {
  float kept;   // of the sum so far
  float added;  // of the part that is added
};

// Returns a sum after a part was added to it.
DAPD_HOST_DEVICE inline float FoldOutput(FoldFactors factors,
                                         float part,
                                         float total) {
  return fmaf(part, factors.added, total * factors.kept);
}

// Adds a part to the softmax of the tokens before it. Returns the factors of
// their outputs; after NoTokens they are 0 and 1.
DAPD_HOST_DEVICE inline FoldFactors FoldPart(const SoftmaxPart& part,
                                             SoftmaxPart& total) {
  const float max = fmaxf(total.max, part.max);
  const FoldFactors factors = {expf(total.max - max), expf(part.max - max)};
  total = {max, FoldOutput(factors, part.sum, total.sum)};
  return factors;
}

}  // namespace dapd
