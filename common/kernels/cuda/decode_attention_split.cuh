// What the kernels of decode attention share: which tokens a block attends to,
// the softmax over them, and how the last block of a row's KV head combines its
// splits.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"

namespace dapd {

inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
static_assert(kMaxHeadGroup <= kAttentionWarps);

// Where a split's partial results lie in the scratch.
struct AttentionScratch {
  SoftmaxPart* parts;  // [rows, heads, splits]
  float* outputs;      // [rows, heads, splits, head_dim]
  int64_t splits;
};

__device__ inline AttentionScratch ScratchOf(const DecodeAttentionArgs& args) {
  const int64_t splits = NumSplits(args.max_tokens);
  const int64_t parts = args.rows.num_rows * args.heads * splits;
  return {reinterpret_cast<SoftmaxPart*>(args.scratch),
          args.scratch + 2 * parts,
          splits};
}

// What a block attends to: tokens of one page. None where its row is nobody's
// or its sequence ends before.
template <typename T>
struct AttentionSplit {
  int64_t row = blockIdx.z;
  int64_t kv_head = blockIdx.y;
  int64_t index = blockIdx.x;
  int64_t length = 0;  // of the sequence
  int tokens = 0;
  const T* keys = nullptr;  // [tokens, head_dim]
  const T* values = nullptr;

  // Past the L1 cache: this may come before WaitForLaunchBefore.
  __device__ explicit AttentionSplit(const DecodeAttentionArgs& args) {
    const int32_t slot = __ldcg(args.rows.slot_of_row + row);
    if (slot < 0) return;
    length = __ldcg(args.rows.positions + slot) + 1;
    const int64_t begin = index * kSplitTokens;
    if (begin >= length) return;
    tokens = static_cast<int>(min(length - begin, int64_t{kSplitTokens}));
    const auto cached = [&](CachedPart part) {
      return CachedTokens<T>(
          args.cache, slot, index, part, args.kv_heads, kv_head, args.head_dim);
    };
    keys = cached(CachedPart::kKeys);
    values = cached(CachedPart::kValues);
  }

  // Those that earlier steps have written: all but the sequence's newest.
  __device__ int EarlierTokens() const {
    const int64_t earlier = length - 1 - index * kSplitTokens;
    return static_cast<int>(
        min(max(earlier, int64_t{0}), int64_t{kSplitTokens}));
  }
  // The first of the query heads that share the KV head, of all rows' heads.
  __device__ int64_t FirstHead(const DecodeAttentionArgs& args) const {
    return row * args.heads + kv_head * (args.heads / args.kv_heads);
  }
};

// One warp: the scores of a head become exp(score - max).
__device__ inline SoftmaxPart Exponentials(float* scores) {
  const int lane = threadIdx.x % kWarp;
  float max = -INFINITY;
#pragma unroll
  for (int t = 0; t < kSplitTokens; t += kWarp) {
    max = fmaxf(max, scores[t + lane]);
  }
  max = ButterflyMax(max);
  float sum = 0.0F;
#pragma unroll
  for (int t = 0; t < kSplitTokens; t += kWarp) {
    const float exponential = expf(scores[t + lane] - max);
    scores[t + lane] = exponential;
    sum += exponential;
  }
  return {max, ButterflySum<kWarp>(sum)};
}

// One warp: a head's weights of its splits, for AddSplits.
__device__ inline void SplitWeights(const SoftmaxPart* parts,
                                    int64_t splits,
                                    float* weights) {
  const int lane = threadIdx.x % kWarp;
  float max = -INFINITY;
  for (int64_t i = lane; i < splits; i += kWarp) {
    max = fmaxf(max, parts[i].max);
  }
  max = ButterflyMax(max);
  for (int64_t i = lane; i < splits; i += kWarp) {
    weights[i] = expf(parts[i].max - max);
  }
}

// Whether the calling block is the last of `blocks` that get here. It sees what
// the others have written before; `counter` is 0 again then. `answer` is in
// shared memory.
__device__ inline bool IsLastBlock(uint32_t* counter,
                                   int64_t blocks,
                                   bool& answer) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(blocks - 1);
    answer = atomicInc(counter, last) == last;
  }
  __syncthreads();
  if (answer) __threadfence();
  return answer;
}

// A block that has written its part of the scratch: the last one of the row's
// KV head combines them. In shared memory: `weights`, [group, kMaxSplits],
// whose place nobody reads any more, and a flag.
template <typename T>
__device__ void CombineIfLast(const DecodeAttentionArgs& args,
                              const AttentionSplit<T>& split,
                              float* weights,
                              bool& is_last) {
  const int64_t splits = NumSplits(split.length);
  uint32_t* counter = args.counters + split.row * args.kv_heads + split.kv_head;
  if (!IsLastBlock(counter, splits, is_last)) return;
  const AttentionScratch scratch = ScratchOf(args);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  const int head_dim = static_cast<int>(args.head_dim);
  const int64_t first = split.FirstHead(args);
  const int warp = threadIdx.x / kWarp;
  if (warp < group) {
    SplitWeights(scratch.parts + (first + warp) * scratch.splits,
                 splits,
                 weights + warp * kMaxSplits);
  }
  __syncthreads();
  T* out = static_cast<T*>(args.out) + split.row * args.out_stride +
           split.kv_head * group * head_dim;
  for (int i = threadIdx.x; i < group * head_dim; i += kAttentionThreads) {
    const int g = i / head_dim;
    const int64_t begin = (first + g) * scratch.splits;
    out[i] = FromFloat<T>(AddSplits(
        scratch.parts + begin,
        scratch.outputs + begin * head_dim + i % head_dim,
        head_dim,
        splits,
        [&](int64_t part) { return weights[g * kMaxSplits + part]; }));
  }
}

}  // namespace dapd
