// The kernels of decode attention. In float32 each thread computes its own
// products, in the order of sums of decode_attention_math.h; in bfloat16 tensor
// cores compute them (decode_attention_bfloat16.cuh).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/decode_attention_bfloat16.cuh"
#include "common/kernels/cuda/decode_attention_split.cuh"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"

namespace dapd {
namespace {

// Blocks that a multiprocessor runs at a time, where their memory fits.
constexpr int kBlocks = 2;
// Shared memory of a multiprocessor in bytes: an A100 has this much, and
// launches that begin early ask for this much (kSharedCarveout). The system
// takes the second constant from it for each block.
constexpr size_t kSharedOfMultiprocessor = size_t{164} << 10;
constexpr size_t kSharedOfSystem = size_t{1} << 10;
constexpr int kKeysPerWarpPass = kWarp / kLanesPerKey;
constexpr int kKeysPerLane = kSplitTokens / kAttentionWarps / kKeysPerWarpPass;
// Every key of a split belongs to one lane group, every head to one warp.
static_assert(kKeysPerLane * kKeysPerWarpPass * kAttentionWarps ==
              kSplitTokens);
static_assert(kMaxHeadDim <= kAttentionThreads);

// Computes scores[g][t] = q_g . k_t / sqrt(head_dim) for the split's tokens.
template <int kGroup>
__device__ void Scores(const float (*q)[kMaxHeadDim],
                       const float* keys,
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
    Vector8<float> loaded[kKeysPerLane];
#pragma unroll
    for (int j = 0; j < kKeysPerLane; ++j) {
      // Lanes behind the sequence's end read its last key again; their scores
      // are not used.
      const int key = min(first_key + j * kKeysPerWarpPass, tokens - 1);
      loaded[j] = Load8(keys + key * head_dim + d);
    }
#pragma unroll
    for (int j = 0; j < kKeysPerLane; ++j) {
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        sums[g][j] = AddChunkDot(sums[g][j], &q[g][d], loaded[j].value);
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

// Computes group_sums[i][g][d], the share of value group i in sum_t
// scores[g][t] v_t[d].
template <int kGroup>
__device__ void Values(const float (*scores)[kSplitTokens],
                       const float* values,
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
    const Vector2<float> pair = Load2(values + t * head_dim + d);
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      sums[g][0] = fmaf(scores[g][t], pair.value[0], sums[g][0]);
      sums[g][1] = fmaf(scores[g][t], pair.value[1], sums[g][1]);
    }
  }
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    float* out = group_sums + (value_group * kGroup + g) * head_dim + d;
    out[0] = sums[g][0];
    out[1] = sums[g][1];
  }
}

// kGroup is the number of query heads per KV head, rounded up.
template <int kGroup>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    AttendFloat(DecodeAttentionArgs args) {
  __shared__ alignas(16) float q[kGroup][kMaxHeadDim];
  __shared__ float scores[kGroup][kSplitTokens];
  // NumValueGroups * head_dim is at most twice the threads.
  __shared__ float group_sums[2 * kAttentionThreads * kGroup];
  __shared__ SplitDealer<float> dealer;
  __shared__ CombineState state;
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  dealer.Begin(args);
  __syncthreads();
  for (int turn = 0; dealer.split(turn).keys != nullptr; ++turn) {
    const AttentionSplit<float>& split = dealer.split(turn);
    dealer.Deal(args, turn + 1);
    const float* query = static_cast<const float*>(args.q) +
                         split.row * args.q_stride +
                         split.KvHead() * group * head_dim;
    for (int i = threadIdx.x; i < kGroup * head_dim; i += kAttentionThreads) {
      const int g = i / head_dim;
      q[g][i % head_dim] = g < group ? query[i] : 0.0F;
    }
    __syncthreads();
    Scores<kGroup>(q, split.keys, split.tokens(), head_dim, scores);
    __syncthreads();
    const AttentionScratch scratch = ScratchOf(args);
    const int64_t first_head = split.FirstHead(args);
    const int warp = threadIdx.x / kWarp;
    if (warp < kGroup) {
      const SoftmaxPart part = Exponentials(scores[warp]);
      if (threadIdx.x % kWarp == 0 && warp < group) {
        scratch.parts[(first_head + warp) * scratch.splits + split.index] =
            part;
      }
    }
    __syncthreads();
    Values<kGroup>(
        scores, split.Values(args), split.tokens(), head_dim, group_sums);
    __syncthreads();
    for (int i = threadIdx.x; i < group * head_dim; i += kAttentionThreads) {
      float sum = 0.0F;
      for (int v = 0; v < NumValueGroups(head_dim); ++v) {
        sum += group_sums[v * kGroup * head_dim + i];
      }
      const int64_t head = first_head + i / head_dim;
      scratch.outputs[(head * scratch.splits + split.index) * head_dim +
                      i % head_dim] = sum;
    }
    __syncthreads();
    // The splits' weights take the memory of the sums.
    static_assert(sizeof(group_sums) >= sizeof(float[kGroup][kMaxSplits]));
    if (split.is_last) CombineIfLast(args, split, group_sums, state);
    __syncthreads();  // the next split's sums are written there
  }
}

// kParts is the number of parts of 32 dimensions, rounded up. While a split is
// computed, the loads of the next split are under way: its keys as soon as this
// split's keys are multiplied, its values as soon as this split's values are
// added up.
template <int kParts>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    AttendBFloat16(DecodeAttentionArgs args) {
  __shared__ SplitDealer<BFloat16> dealer;
  __shared__ HeadRows rows;
  __shared__ CombineState state;
  extern __shared__ BFloat16Pairs values_and_weights[];
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  auto* const values = reinterpret_cast<BFloat16*>(values_and_weights);
  auto* const weights =
      reinterpret_cast<float*>(values + kSplitTokens * ValueStride(head_dim));
  dealer.Begin(args);
  __syncthreads();
  WarpKeys<kParts> keys;
  const AttentionSplit<BFloat16>& first = dealer.split(0);
  int early = 0;
  if (first.keys != nullptr) {
    early = kMayBeginEarly ? first.EarlierTokens() : 0;
    keys.Load(first, head_dim, 0, early);
    CopyValues(first.Values(args), head_dim, 0, early, values);
  }
  dealer.Deal(args, 1);
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  if (first.keys != nullptr && early < first.tokens()) {
    keys.Load(first, head_dim, early, first.tokens());
    CopyValues(first.Values(args), head_dim, early, first.tokens(), values);
    ClearValues(head_dim, first.tokens(), values);
  }
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int turn = 0; dealer.split(turn).keys != nullptr; ++turn) {
    const AttentionSplit<BFloat16>& split = dealer.split(turn);
    keys.Score(WarpQueries<kParts>(args, split), split, group, head_dim, rows);
    __syncthreads();
    const AttentionSplit<BFloat16>& next = dealer.split(turn + 1);
    if (next.keys != nullptr) keys.Load(next, head_dim, 0, next.tokens());
    dealer.Deal(args, turn + 2);
    if (warp < group) {
      const SoftmaxPart part = Exponentials(rows.scores[warp]);
      RoundWeights(rows, warp);
      if (lane == 0) {
        const AttentionScratch scratch = ScratchOf(args);
        scratch.parts[(split.FirstHead(args) + warp) * scratch.splits +
                      split.index] = part;
      }
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    WeightValues(args, split, rows, values);
    __syncthreads();
    if (next.keys != nullptr) {
      CopyValues(next.Values(args), head_dim, 0, next.tokens(), values);
      ClearValues(head_dim, next.tokens(), values);
    }
    if (split.is_last) CombineIfLast(args, split, weights, state);
  }
}

// Launches as many blocks as the device can run at a time, but no more than
// there are splits.
template <auto kKernel>
int LaunchKernel(const DecodeAttentionArgs& args,
                 void* stream,
                 int blocks,
                 size_t shared_bytes) {
  const int multiprocessors =
      DeviceAttribute(cudaDevAttrMultiProcessorCount).value_or(1);
  const int64_t places =
      std::max<int64_t>(1, blocks * multiprocessors / args.kv_heads);
  const dim3 grid(static_cast<unsigned>(std::min(
                      places, args.rows.num_rows * NumSplits(args.max_tokens))),
                  static_cast<unsigned>(args.kv_heads));
  return LaunchOn<kKernel>(
      stream, Begin::kEarly, grid, kAttentionThreads, args, shared_bytes);
}

int LaunchFloat(const DecodeAttentionArgs& args, void* stream) {
  const int64_t group = args.heads / args.kv_heads;
  if (group <= 2)
    return LaunchKernel<&AttendFloat<2>>(args, stream, kBlocks, 0);
  if (group <= 4)
    return LaunchKernel<&AttendFloat<4>>(args, stream, kBlocks, 0);
  return LaunchKernel<&AttendFloat<kMaxHeadGroup>>(args, stream, kBlocks, 0);
}

int LaunchBFloat16(const DecodeAttentionArgs& args, void* stream) {
  const auto head_dim = static_cast<int>(args.head_dim);
  const size_t values = sizeof(BFloat16) * kSplitTokens * ValueStride(head_dim);
  const size_t weights =
      sizeof(float) * kMaxSplits * (args.heads / args.kv_heads);
  const size_t bytes = values + weights;
  constexpr size_t kStatic = sizeof(SplitDealer<BFloat16>) + sizeof(HeadRows) +
                             sizeof(CombineState) + kSharedOfSystem;
  const int blocks =
      kBlocks * (bytes + kStatic) <= kSharedOfMultiprocessor ? kBlocks : 1;
  const auto launch = [&]<int kParts>() {
    return LaunchKernel<&AttendBFloat16<kParts>>(args, stream, blocks, bytes);
  };
  if (head_dim <= 64) return launch.template operator()<2>();
  if (head_dim <= 128) return launch.template operator()<4>();
  return launch.template operator()<8>();
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
  return number == CudaNumber::kFloat32 ? LaunchFloat(*args, stream)
                                        : LaunchBFloat16(*args, stream);
}

}  // namespace dapd
