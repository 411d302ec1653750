// Decode attention in bfloat16 with tensor cores: the query heads that share a
// KV head are the rows of both products. Memory limits the time of a block, so
// a block asks for all keys and values of its first page before anything else;
// the launch in front writes none of them but the newest token's, and may still
// run. Keys are loaded into the registers of the lanes that multiply them.
// Values are copied asynchronously into shared memory, from where they are
// loaded transposed. Numbers of a Float8 cache become bfloat16 on their way,
// and their tokens' scales multiply scores and weights.
#pragma once

#include <cuda_pipeline.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/kernels/cuda/decode_attention_split.cuh"
#include "common/kernels/cuda/tensor_core.cuh"

namespace dapd {

inline constexpr int kAttentionTile = 16;  // tokens or dimensions of a product
inline constexpr int kPartDims = 32;       // dimensions that four lanes load at
                                           // a time
static_assert(kAttentionTile * kAttentionWarps == kPageTokens);

// Returns the numbers from one token's values to the next token's in shared
// memory: an odd number of 16 bytes, so that the values of eight tokens lie in
// different banks.
DAPD_HOST_DEVICE inline int ValueStride(int head_dim) {
  return ((head_dim / kChunk + 1) | 1) * kChunk;
}

// Shared memory of a block beside the values, by head. A row has room for more
// numbers than tokens, so that the rows of eight heads lie in different banks.
struct HeadRows {
  alignas(16) float scores[kMaxHeadGroup][kPageTokens + 4];
  // exp(score - max) is kept as the sum of two bfloat16 numbers, with 16
  // significant bits instead of 8.
  alignas(16) BFloat16 upper[kMaxHeadGroup][kPageTokens + 8];
  alignas(16) BFloat16 lower[kMaxHeadGroup][kPageTokens + 8];
  FoldFactors factors[kMaxHeadGroup];  // of the page's outputs
};

// Lane l holds row l / 4 of the heads that share the KV head, in the layout of
// WarpKeys; rows behind the last head are zeros.
template <int kParts>
class WarpQueries {
 public:
  template <typename Cached>
  __device__ WarpQueries(const DecodeAttentionArgs& args,
                         const AttentionPage<Cached>& page) {
    const int lane = threadIdx.x % kWarp;
    const int head_dim = static_cast<int>(args.head_dim);
    const int group = static_cast<int>(args.heads / args.kv_heads);
    const int head = lane / 4;
    const BFloat16* from = static_cast<const BFloat16*>(args.q) +
                           page.row * args.q_stride +
                           (page.KvHead() * group + head) * head_dim;
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

// Eight numbers of the cache, which a lane loads at a time.
template <typename Cached>
using CachedOctet = std::
    conditional_t<std::is_same_v<Cached, Float8>, Float8Octet, BFloat16Pairs>;

// The keys that a lane multiplies: of every 32 dimensions it holds those from 8
// (l % 4) on, for tokens l / 4 and l / 4 + 8 of its warp's 16 tokens. Keys of
// missing tokens are undefined.
template <typename Cached, int kParts>
class WarpKeys {
 public:
  // Begins to load the keys of tokens [begin, end).
  __device__ void Load(const AttentionPage<Cached>& page,
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
        const bool is_in = token >= begin && token < end && d < head_dim;
        const Cached* const from = page.keys + token * head_dim + d;
        if constexpr (std::is_same_v<Cached, Float8>) {
          LoadIf(is_in, from, keys_[i][part]);
        } else {
          LoadIf<LoadedPast::kL1>(is_in, from, keys_[i][part]);
        }
      }
    }
  }

  // Computes the scores of the warp's tokens, -INFINITY for missing tokens.
  __device__ void Score(const WarpQueries<kParts>& queries,
                        const AttentionPage<Cached>& page,
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
        MultiplyTile(
            queries.part(part), BFloat16Pairs{}, ToPairs(keys_[i][part]), sums);
      }
      if (lane / 4 >= group) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = first + 8 * i + j;
        rows.scores[lane / 4][token] =
            token < page.tokens() ? sums[j] * scale : -INFINITY;
      }
    }
  }

 private:
  CachedOctet<Cached> keys_[2][kParts] = {};
};

// The values of the page that is attended to, in shared memory, [tokens,
// ValueStride].
template <typename Cached>
class BlockValues;

template <>
class BlockValues<BFloat16> {
 public:
  static constexpr bool kHasScales = false;

  // Returns the bytes of dynamic shared memory.
  static size_t Bytes(int head_dim) {
    return sizeof(BFloat16) * kPageTokens * ValueStride(head_dim);
  }
  __device__ BlockValues(BFloat16Pairs* memory, int /*head_dim*/)
      : values_(reinterpret_cast<BFloat16*>(memory)) {}

  // Begins to copy the values of tokens [begin, end).
  __device__ void Copy(const BFloat16* from, int head_dim, int begin, int end) {
    const int chunks = head_dim / kChunk;
    int token = begin + static_cast<int>(threadIdx.x) / chunks;
    int chunk = static_cast<int>(threadIdx.x) % chunks;
    while (token < end) {
      __pipeline_memcpy_async(
          values_ + token * ValueStride(head_dim) + chunk * kChunk,
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
  // Waits for the thread's copies. The block's values are there after the next
  // barrier.
  __device__ void Wait(int /*head_dim*/, int /*tokens*/) {
    __pipeline_wait_prior(0);
  }
  __device__ BFloat16* values() const { return values_; }

 private:
  BFloat16* values_;
};

// The numbers are copied as they are. Each thread then converts what it copied.
template <>
class BlockValues<Float8> {
 public:
  static constexpr bool kHasScales = true;

  static size_t Bytes(int head_dim) {
    return BlockValues<BFloat16>::Bytes(head_dim) +
           sizeof(Float8) * kPageTokens * head_dim;
  }
  __device__ BlockValues(BFloat16Pairs* memory, int head_dim)
      : values_(reinterpret_cast<BFloat16*>(memory)),
        copied_(reinterpret_cast<Float8*>(
            values_ + kPageTokens * ValueStride(head_dim))) {}

  __device__ void Copy(const Float8* from, int head_dim, int begin, int end) {
    ForOwn(head_dim, begin, end, [&](int at) {
      __pipeline_memcpy_async(copied_ + at, from + at, 16);
    });
    __pipeline_commit();
  }
  __device__ void Wait(int head_dim, int tokens) {
    __pipeline_wait_prior(0);
    ForOwn(head_dim, 0, tokens, [&](int at) {
      BFloat16* const to =
          values_ + at / head_dim * ValueStride(head_dim) + at % head_dim;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<BFloat16Pairs*>(to + i * kChunk) = ToPairs(
            *reinterpret_cast<const Float8Octet*>(copied_ + at + i * kChunk));
      }
    });
  }
  __device__ BFloat16* values() const { return values_; }

 private:
  // Calls `use` with the place of every 16 numbers of tokens [begin, end) that
  // are this thread's.
  template <typename Use>
  __device__ static void ForOwn(int head_dim,
                                int begin,
                                int end,
                                const Use& use) {
    constexpr int kBytes = 16;
    const auto thread = static_cast<int>(threadIdx.x);
    const int first = begin * head_dim / kBytes;
    // The thread's first place from `first` on.
    int i = first + (thread + kAttentionThreads - first % kAttentionThreads) %
                        kAttentionThreads;
    for (; i < end * head_dim / kBytes; i += kAttentionThreads) {
      use(i * kBytes);
    }
  }

  BFloat16* values_;
  Float8* copied_;
};

// The scales of a page's keys and values, in shared memory. Thread t loads the
// scale of token t % kPageTokens, of the keys or of the values.
class PageScales {
 public:
  struct Shared {
    BFloat16 keys[kPageTokens];
    BFloat16 values[kPageTokens];
  };
  static_assert(kAttentionThreads == 2 * kPageTokens);

  // Begins to load the scales of tokens [begin, end).
  __device__ void Load(const DecodeAttentionArgs& args,
                       const AttentionPage<Float8>& page,
                       int begin,
                       int end) {
    const auto token = static_cast<int>(threadIdx.x) % kPageTokens;
    if (begin == 0) scale_ = kOne;  // of missing tokens
    LoadIf(
        token >= begin && token < end,
        ScalesOf(is_of_keys() ? page.keys : page.Values(args), args.head_dim) +
            token,
        scale_);
  }
  // The scales are there after the next barrier.
  __device__ void Put(Shared& shared) const {
    const auto token = static_cast<int>(threadIdx.x) % kPageTokens;
    (is_of_keys() ? shared.keys : shared.values)[token] = scale_;
  }

 private:
  static constexpr BFloat16 kOne = {0x3F80};

  __device__ static bool is_of_keys() { return threadIdx.x < kPageTokens; }

  BFloat16 scale_ = kOne;
};

// A warp multiplies the scores of a head, before Exponentials, and its weights,
// after it. Each lane processes the same tokens as there.
__device__ inline void Scale(const BFloat16 (&scales)[kPageTokens],
                             float* numbers) {
#pragma unroll
  for (int i = 0; i < kPageTokens; i += kWarp) {
    const int t = i + threadIdx.x % kWarp;
    numbers[t] *= ToFloat(scales[t]);
  }
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
  for (int i = 0; i < kPageTokens; i += kWarp) {
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
    const BFloat16 (&weights)[kMaxHeadGroup][kPageTokens + 8],
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

// A warp's share of sum_t weight[t] v_t, unnormalised, of the pages of a sum:
// 16 dimensions at a time, for heads l / 4. There are no heads from 8 on, so
// half of a product's sums are not kept.
template <int kParts>
class OutputSums {
 public:
  // Adds a page's tokens and writes complete sums into the scratch.
  template <typename Cached>
  __device__ void Add(const DecodeAttentionArgs& args,
                      const AttentionPage<Cached>& page,
                      const HeadRows& rows,
                      const BFloat16* values) {
    const int lane = threadIdx.x % kWarp;
    const int head_dim = static_cast<int>(args.head_dim);
    const int group = static_cast<int>(args.heads / args.kv_heads);
    const AttentionScratch scratch = ScratchOf(args);
    float* out =
        scratch.outputs +
        page.PlaceOf(scratch, page.FirstHead(args) + lane / 4) * head_dim;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int first =
          (tile * kAttentionWarps + static_cast<int>(threadIdx.x) / kWarp) *
          kAttentionTile;
      if (first >= head_dim) break;
      // Lane l names token l % 16, with the first 8 dimensions or with the
      // second 8. Where there are no second 8, it names the first again; their
      // sums are not read.
      const int d = min(first + lane / 16 * kChunk, head_dim - kChunk);
      const BFloat16* row = values + lane % 16 * ValueStride(head_dim) + d;
      float sums[2][4] = {};
      for (int t = 0; t < page.tokens(); t += kAttentionTile) {
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
      const FoldFactors factors = rows.factors[lane / 4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first + i * kChunk + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& total = totals_[tile][i][j];
          if (page.BeginsSum()) total = 0.0F;
          total = FoldOutput(factors, sums[i][j], total);
          if (page.EndsSum() && at < head_dim) out[at + j] = total;
        }
      }
    }
  }

 private:
  static constexpr int kTiles =
      (kParts * kPartDims + kAttentionWarps * kAttentionTile - 1) /
      (kAttentionWarps * kAttentionTile);

  float totals_[kTiles][2][2] = {};
};

}  // namespace dapd
