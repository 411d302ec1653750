#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"

namespace dapd {
namespace {

constexpr int kWarps = kAttentionThreads / kWarp;
constexpr int kKeysPerWarpPass = kWarp / kLanesPerKey;
constexpr int kKeysPerLane = kSplitTokens / kWarps / kKeysPerWarpPass;
// Every key of a split belongs to one lane group, every head to one warp.
static_assert(kKeysPerLane * kKeysPerWarpPass * kWarps == kSplitTokens);
static_assert(kMaxHeadGroup <= kWarps && kMaxHeadDim <= kAttentionThreads);

// Where a split's partial results lie in the scratch.
struct Scratch {
  SoftmaxPart* parts;  // [rows, heads, splits]
  float* outputs;      // [rows, heads, splits, head_dim]
  int64_t splits;
};

__host__ __device__ Scratch ScratchOf(const DecodeAttentionArgs& args) {
  const int64_t splits = NumSplits(args.max_tokens);
  const int64_t parts = args.rows.num_rows * args.heads * splits;
  return {reinterpret_cast<SoftmaxPart*>(args.scratch),
          args.scratch + 2 * parts,
          splits};
}

// scores[g][t] = q_g . k_t / sqrt(head_dim) for the split's tokens.
template <typename T, int kGroup>
__device__ void Scores(const float (*q)[kMaxHeadDim],
                       const T* keys,
                       int tokens,
                       int head_dim,
                       float (*scores)[kSplitTokens]) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int first_key =
      warp * kKeysPerLane * kKeysPerWarpPass + lane / kLanesPerKey;
  float sums[kGroup][kKeysPerLane] = {};
#pragma unroll 2
  for (int d = lane % kLanesPerKey * kChunk; d < head_dim;
       d += kLanesPerKey * kChunk) {
    Vector8<T> loaded[kKeysPerLane];
#pragma unroll
    for (int j = 0; j < kKeysPerLane; ++j) {
      // Behind the sequence's end the last key is read again, for nothing.
      const int key = min(first_key + j * kKeysPerWarpPass, tokens - 1);
      loaded[j] = Load8(keys + key * head_dim + d);
    }
#pragma unroll
    for (int j = 0; j < kKeysPerLane; ++j) {
      float key[kChunk];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) key[i] = ToFloat(loaded[j].value[i]);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        sums[g][j] = AddChunkDot(sums[g][j], &q[g][d], key);
      }
    }
  }
  const float scale = 1.0F / sqrtf(static_cast<float>(head_dim));
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
#pragma unroll
    for (int j = 0; j < kKeysPerLane; ++j) {
      const float score = ButterflySum<kLanesPerKey>(sums[g][j]) * scale;
      if (lane % kLanesPerKey == 0) {
        const int key = first_key + j * kKeysPerWarpPass;
        scores[g][key] = key < tokens ? score : -INFINITY;
      }
    }
  }
}

// One warp: scores become exp(score - max).
__device__ SoftmaxPart Exponentials(float* scores) {
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

// group_sums[i][g][d]: value group i's share of sum_t scores[g][t] v_t[d].
template <typename T, int kGroup>
__device__ void Values(const float (*scores)[kSplitTokens],
                       const T* values,
                       int tokens,
                       int head_dim,
                       float* group_sums) {
  const int pairs = head_dim / 2;
  const int groups = NumValueGroups(head_dim);
  const int value_group = threadIdx.x / pairs;
  const int d = threadIdx.x % pairs * 2;
  if (value_group >= groups) return;
  float sums[kGroup][2] = {};
#pragma unroll 8
  for (int t = value_group; t < tokens; t += groups) {
    const auto pair =
        *reinterpret_cast<const Vector2<T>*>(values + t * head_dim + d);
    const float first = ToFloat(pair.value[0]);
    const float second = ToFloat(pair.value[1]);
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      sums[g][0] = fmaf(scores[g][t], first, sums[g][0]);
      sums[g][1] = fmaf(scores[g][t], second, sums[g][1]);
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float* out = group_sums + (value_group * kGroup + g) * head_dim + d;
    out[0] = sums[g][0];
    out[1] = sums[g][1];
  }
}

// One warp: a head's weights of its splits, for AddSplits.
__device__ void SplitWeights(const SoftmaxPart* parts,
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
// the others have written before; `counter` is 0 again then.
__device__ bool IsLastBlock(uint32_t* counter, int64_t blocks) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(blocks - 1);
    is_last = atomicInc(counter, last) == last;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

// A block a (split, KV head, row). kGroup: query heads a KV head, rounded up.
template <typename T, int kGroup>
__global__ void __launch_bounds__(kAttentionThreads)
    AttendSplit(DecodeAttentionArgs args) {
  __shared__ alignas(16) float q[kGroup][kMaxHeadDim];
  __shared__ float scores[kGroup][kSplitTokens];
  // NumValueGroups * head_dim is at most twice the threads.
  __shared__ float group_sums[2 * kAttentionThreads * kGroup];
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  const int64_t split = blockIdx.x;
  const int64_t kv_head = blockIdx.y;
  const int64_t row = blockIdx.z;
  const int32_t slot = args.rows.slot_of_row[row];
  if (slot < 0) return;
  const int64_t length = args.rows.positions[slot] + 1;
  const int64_t begin = split * kSplitTokens;
  if (begin >= length) return;
  const int tokens =
      static_cast<int>(min(length - begin, int64_t{kSplitTokens}));
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  const int64_t first_head = kv_head * group;

  const T* query = static_cast<const T*>(args.q) + row * args.q_stride +
                   first_head * head_dim;
  for (int i = threadIdx.x; i < kGroup * head_dim; i += kAttentionThreads) {
    const int g = i / head_dim;
    q[g][i % head_dim] = g < group ? ToFloat(query[i]) : 0.0F;
  }
  __syncthreads();
  const auto cached = [&](CachedPart part) -> const T* {
    return CachedTokens<T>(
        args.cache, slot, split, part, args.kv_heads, kv_head, head_dim);
  };
  Scores<T, kGroup>(q, cached(CachedPart::kKeys), tokens, head_dim, scores);
  __syncthreads();
  const Scratch scratch = ScratchOf(args);
  const int warp = threadIdx.x / kWarp;
  if (warp < kGroup) {
    const SoftmaxPart part = Exponentials(scores[warp]);
    if (threadIdx.x % kWarp == 0 && warp < group) {
      scratch.parts[(row * args.heads + first_head + warp) * scratch.splits +
                    split] = part;
    }
  }
  __syncthreads();
  Values<T, kGroup>(
      scores, cached(CachedPart::kValues), tokens, head_dim, group_sums);
  __syncthreads();
  for (int i = threadIdx.x; i < group * head_dim; i += kAttentionThreads) {
    float sum = 0.0F;
    for (int v = 0; v < NumValueGroups(head_dim); ++v) {
      sum += group_sums[v * kGroup * head_dim + i];
    }
    const int64_t head = row * args.heads + first_head + i / head_dim;
    scratch.outputs[(head * scratch.splits + split) * head_dim + i % head_dim] =
        sum;
  }
  uint32_t* counter = args.counters + row * args.kv_heads + kv_head;
  const int64_t splits = NumSplits(length);
  if (!IsLastBlock(counter, splits)) return;
  const SoftmaxPart* parts =
      scratch.parts + (row * args.heads + first_head) * scratch.splits;
  // Where the sums were.
  static_assert(sizeof(group_sums) >= sizeof(float[kGroup][kMaxSplits]));
  if (warp < group) {
    SplitWeights(
        parts + warp * scratch.splits, splits, group_sums + warp * kMaxSplits);
  }
  __syncthreads();
  T* out =
      static_cast<T*>(args.out) + row * args.out_stride + first_head * head_dim;
  for (int i = threadIdx.x; i < group * head_dim; i += kAttentionThreads) {
    const int g = i / head_dim;
    const float* weights = group_sums + g * kMaxSplits;
    const int64_t head = row * args.heads + first_head + g;
    out[i] = FromFloat<T>(AddSplits(
        parts + g * scratch.splits,
        scratch.outputs + head * scratch.splits * head_dim + i % head_dim,
        head_dim,
        splits,
        [&](int64_t part) { return weights[part]; }));
  }
}

template <typename T>
int LaunchAttention(const DecodeAttentionArgs& args, void* stream) {
  const dim3 grid(static_cast<unsigned>(NumSplits(args.max_tokens)),
                  static_cast<unsigned>(args.kv_heads),
                  static_cast<unsigned>(args.rows.num_rows));
  const int64_t group = args.heads / args.kv_heads;
  const auto launch = [&]<int kGroup>(std::integral_constant<int, kGroup>) {
    return LaunchOn<AttendSplit<T, kGroup>>(
        stream, Begin::kEarly, grid, kAttentionThreads, args);
  };
  if (group <= 2) return launch(std::integral_constant<int, 2>());
  if (group <= 4) return launch(std::integral_constant<int, 4>());
  return launch(std::integral_constant<int, kMaxHeadGroup>());
}

}  // namespace

extern "C" int64_t DapdCudaDecodeAttentionScratch(int64_t rows,
                                                  int64_t heads,
                                                  int64_t head_dim,
                                                  int64_t max_tokens) {
  return DecodeAttentionScratch(rows, heads, head_dim, max_tokens);
}

extern "C" int DapdCudaDecodeAttention(const DecodeAttentionArgs* args,
                                       CudaNumber number,
                                       void* stream) {
  if (!FitsDecodeAttention(args->heads, args->kv_heads, args->head_dim) ||
      NumSplits(args->max_tokens) > kMaxSplits) {
    return static_cast<int>(cudaErrorInvalidValue);
  }
  return LaunchFor(number, [&](auto t) {
    return LaunchAttention<decltype(t)>(*args, stream);
  });
}

}  // namespace dapd
