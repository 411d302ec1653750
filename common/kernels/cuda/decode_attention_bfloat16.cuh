// Decode attention in bfloat16 with tensor cores: the query heads that share a
// KV head are the rows of both products. Memory limits the time of a block, so
// a block asks for all keys and values of its first split before anything else;
// the launch in front writes none of them but the newest token's, and may still
// run. Keys are loaded into the registers of the lanes that multiply them.
// Values are copied asynchronously into shared memory, from where they are
// loaded transposed.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>

#include "common/kernels/cuda/decode_attention_split.cuh"
#include "common/kernels/cuda/tensor_core.cuh"

namespace dapd {

inline constexpr int kAttentionTile = 16;  // tokens or dimensions of a product
inline constexpr int kPartDims = 32;       // dimensions that four lanes load at
                                           // a time
static_assert(kAttentionTile * kAttentionWarps == kSplitTokens);

// Returns the numbers from one token's values to the next token's in shared
// memory: an odd number of 16 bytes, so that the values of eight tokens lie in
// different banks.
DAPD_HOST_DEVICE inline int ValueStride(int head_dim) {
  return ((head_dim / kChunk + 1) | 1) * kChunk;
}

// Shared memory of a block beside the values, by head. A row has room for more
// numbers than tokens, so that the rows of eight heads lie in different banks.
struct HeadRows {
  alignas(16) float scores[kMaxHeadGroup][kSplitTokens + 4];
  // exp(score - max) is kept as the sum of two bfloat16 numbers, with 16
  // significant bits instead of 8.
  alignas(16) BFloat16 upper[kMaxHeadGroup][kSplitTokens + 8];
  alignas(16) BFloat16 lower[kMaxHeadGroup][kSplitTokens + 8];
};

// Lane l holds row l / 4 of the heads that share the KV head, in the layout of
// WarpKeys; rows behind the last head are zeros.
template <int kParts>
class WarpQueries {
 public:
  __device__ WarpQueries(const DecodeAttentionArgs& args,
                         const AttentionSplit<BFloat16>& split) {
    const int lane = threadIdx.x % kWarp;
    const int head_dim = static_cast<int>(args.head_dim);
    const int group = static_cast<int>(args.heads / args.kv_heads);
    const int head = lane / 4;
    const BFloat16* from = static_cast<const BFloat16*>(args.q) +
                           split.row * args.q_stride +
                           (split.KvHead() * group + head) * head_dim;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int d = part * kPartDims + lane % 4 * kChunk;
      LoadIf(head < group && d < head_dim, from + d, parts_[part]);
    }
  }

  __device__ const BFloat16Pairs& part(int i) const { return parts_[i]; }

 private:
  BFloat16Pairs parts_[kParts] = {};
};

// The keys that a lane multiplies: of every 32 dimensions it holds those from 8
// (l % 4) on, for tokens l / 4 and l / 4 + 8 of its warp's 16 tokens. Keys of
// missing tokens are undefined.
template <int kParts>
class WarpKeys {
 public:
  // Begins to load the keys of tokens [begin, end).
  __device__ void Load(const AttentionSplit<BFloat16>& split,
                       int head_dim,
                       int begin,
                       int end) {
    const int lane = threadIdx.x % kWarp;
    const int first = threadIdx.x / kWarp * kAttentionTile + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = first + 8 * i;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int d = part * kPartDims + lane % 4 * kChunk;
        LoadIf<LoadedPast::kL1>(token >= begin && token < end && d < head_dim,
                                split.keys + token * head_dim + d,
                                keys_[i][part]);
      }
    }
  }

  // Computes the scores of the warp's tokens, -INFINITY for missing tokens.
  __device__ void Score(const WarpQueries<kParts>& queries,
                        const AttentionSplit<BFloat16>& split,
                        int group,
                        int head_dim,
                        HeadRows& rows) const {
    const int lane = threadIdx.x % kWarp;
    const int first = threadIdx.x / kWarp * kAttentionTile + lane % 4 * 2;
    const float scale = 1.0F / sqrtf(static_cast<float>(head_dim));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sums[4] = {};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        MultiplyTile(queries.part(part), BFloat16Pairs{}, keys_[i][part], sums);
      }
      if (lane / 4 >= group) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = first + 8 * i + j;
        rows.scores[lane / 4][token] =
            token < split.tokens() ? sums[j] * scale : -INFINITY;
      }
    }
  }

 private:
  BFloat16Pairs keys_[2][kParts] = {};
};

// Begins to copy the values of tokens [begin, end) to [tokens, ValueStride].
__device__ inline void CopyValues(
    const BFloat16* from, int head_dim, int begin, int end, BFloat16* to) {
  const int chunks = head_dim / kChunk;
  int token = begin + static_cast<int>(threadIdx.x) / chunks;
  int chunk = static_cast<int>(threadIdx.x) % chunks;
  while (token < end) {
    __pipeline_memcpy_async(to + token * ValueStride(head_dim) + chunk * kChunk,
                            from + token * head_dim + chunk * kChunk,
                            16);
    token += kAttentionThreads / chunks;
    chunk += kAttentionThreads % chunks;
    if (chunk >= chunks) {
      chunk -= chunks;
      ++token;
    }
  }
  __pipeline_commit();
}

// Clears the values of missing tokens, up to a whole tile.
__device__ inline void ClearValues(int head_dim, int tokens, BFloat16* to) {
  const int chunks = ValueStride(head_dim) / kChunk;
  const int end =
      (tokens + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  for (int i = tokens * chunks + threadIdx.x; i < end * chunks;
       i += kAttentionThreads) {
    Store8(to + i * kChunk, Vector8<BFloat16>{});
  }
}

// A warp calls this after Exponentials. Each lane processes the same tokens as
// there.
__device__ inline void RoundWeights(HeadRows& rows, int head) {
#pragma unroll
  for (int i = 0; i < kSplitTokens; i += kWarp) {
    const int t = i + threadIdx.x % kWarp;
    const float weight = rows.scores[head][t];
    const auto upper = FromFloat<BFloat16>(weight);
    rows.upper[head][t] = upper;
    rows.lower[head][t] = FromFloat<BFloat16>(weight - ToFloat(upper));
  }
}

// Loads the weights of head l / 4 as the operand `a` of MultiplyTile. There are
// no heads from 8 on.
__device__ inline void LoadWeights(
    const BFloat16 (&weights)[kMaxHeadGroup][kSplitTokens + 8],
    int group,
    int first_token,
    uint32_t (&a)[4]) {
  const int lane = threadIdx.x % kWarp;
  const int head = lane / 4;
  a[0] = a[1] = a[2] = a[3] = 0;
  if (head >= group) return;
  const BFloat16* from = &weights[head][first_token + lane % 4 * 2];
  a[0] = *reinterpret_cast<const uint32_t*>(from);
  a[2] = *reinterpret_cast<const uint32_t*>(from + 8);
}

// Writes a warp's share of sum_t weight[t] v_t, unnormalised, into the scratch,
// 16 dimensions at a time.
__device__ inline void WeightValues(const DecodeAttentionArgs& args,
                                    const AttentionSplit<BFloat16>& split,
                                    const HeadRows& rows,
                                    const BFloat16* values) {
  const int lane = threadIdx.x % kWarp;
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  const AttentionScratch scratch = ScratchOf(args);
  float* out =
      scratch.outputs +
      ((split.FirstHead(args) + lane / 4) * scratch.splits + split.index) *
          head_dim;
  for (int first = static_cast<int>(threadIdx.x) / kWarp * kAttentionTile;
       first < head_dim;
       first += kAttentionWarps * kAttentionTile) {
    // Lane l names token l % 16, with the first 8 dimensions or with the second
    // 8. Where there are no second 8, it names the first again; their sums are
    // not read.
    const int d = min(first + lane / 16 * kChunk, head_dim - kChunk);
    const BFloat16* row = values + lane % 16 * ValueStride(head_dim) + d;
    float sums[2][4] = {};
    for (int t = 0; t < split.tokens(); t += kAttentionTile) {
      uint32_t tiles[4];
      LoadTransposedTiles(row + t * ValueStride(head_dim), tiles);
      uint32_t upper[4];
      uint32_t lower[4];
      LoadWeights(rows.upper, group, t, upper);
      LoadWeights(rows.lower, group, t, lower);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        MultiplyTile(upper, {tiles[2 * i], tiles[2 * i + 1]}, sums[i]);
        MultiplyTile(lower, {tiles[2 * i], tiles[2 * i + 1]}, sums[i]);
      }
    }
    if (lane / 4 >= group) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = first + i * kChunk + lane % 4 * 2;
      if (at >= head_dim) continue;
      out[at] = sums[i][0];
      out[at + 1] = sums[i][1];
    }
  }
}

}  // namespace dapd
