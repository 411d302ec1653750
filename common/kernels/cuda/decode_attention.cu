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
constexpr int kKeysPerLane = kPageTokens / kAttentionWarps / kKeysPerWarpPass;
// Every key of a page belongs to one lane group, every head to one warp.
static_assert(kKeysPerLane * kKeysPerWarpPass * kAttentionWarps == kPageTokens);
static_assert(kMaxHeadDim <= kAttentionThreads);

// Computes scores[g][t] = q_g . k_t / sqrt(head_dim) for the page's tokens.
template <int kGroup>
__device__ void Scores(const float (*q)[kMaxHeadDim],
                       const float* keys,
                       int tokens,
                       int head_dim,
                       float (*scores)[kPageTokens]) {
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
__device__ void Values(const float (*scores)[kPageTokens],
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
  __shared__ float scores[kGroup][kPageTokens];
  // NumValueGroups * head_dim is at most twice the threads.
  __shared__ float group_sums[2 * kAttentionThreads * kGroup];
  __shared__ float totals[kGroup * kMaxHeadDim];
  __shared__ FoldFactors factors[kGroup];
  __shared__ PageDealer<float> dealer;
  __shared__ CombineState state;
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  dealer.Begin(args);
  __syncthreads();
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  SoftmaxPart softmax = NoTokens();  // of the warp's head
  for (int turn = 0; dealer.page(turn).keys != nullptr; ++turn) {
    const AttentionPage<float>& page = dealer.page(turn);
    dealer.Deal(args, turn + 1);
    const float* query = static_cast<const float*>(args.q) +
                         page.row * args.q_stride +
                         page.KvHead() * group * head_dim;
    for (int i = threadIdx.x; i < kGroup * head_dim; i += kAttentionThreads) {
      const int g = i / head_dim;
      q[g][i % head_dim] = g < group ? query[i] : 0.0F;
    }
    __syncthreads();
    Scores<kGroup>(q, page.keys, page.tokens(), head_dim, scores);
    __syncthreads();
    if (warp < kGroup) {
      const SoftmaxPart part = Exponentials(scores[warp]);
      if (warp < group) AddPage(args, page, part, softmax, factors[warp]);
    }
    __syncthreads();
    Values<kGroup>(
        scores, page.Values(args), page.tokens(), head_dim, group_sums);
    __syncthreads();
    const AttentionScratch scratch = ScratchOf(args);
    for (int i = threadIdx.x; i < group * head_dim; i += kAttentionThreads) {
      float sum = 0.0F;
      for (int v = 0; v < NumValueGroups(head_dim); ++v) {
        sum += group_sums[v * kGroup * head_dim + i];
      }
      const int g = i / head_dim;
      totals[i] =
          FoldOutput(factors[g], sum, page.BeginsSum() ? 0.0F : totals[i]);
      if (!page.EndsSum()) continue;
      scratch
          .outputs[page.PlaceOf(scratch, page.FirstHead(args) + g) * head_dim +
                   i % head_dim] = totals[i];
    }
    __syncthreads();
    if (page.is_last) {
      CombineIfLast<float>(args, page, dealer.pages_per_block(), state);
    }
  }
}

// kParts is the number of parts of 32 dimensions, rounded up. While a page is
// computed, the loads of the next page are under way: its keys as soon as this
// page's keys are multiplied, its values as soon as this page's values are
// added up.
template <typename Cached, int kParts>
__global__ void __launch_bounds__(kAttentionThreads, kBlocks)
    AttendBFloat16(DecodeAttentionArgs args) {
  constexpr bool kHasScales = BlockValues<Cached>::kHasScales;
  __shared__ PageDealer<Cached> dealer;
  __shared__ HeadRows rows;
  __shared__ CombineState state;
  __shared__ PageScales::Shared scales;
  extern __shared__ BFloat16Pairs shared_values[];
  const int head_dim = static_cast<int>(args.head_dim);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  BlockValues<Cached> values(shared_values, head_dim);
  dealer.Begin(args);
  __syncthreads();
  WarpKeys<Cached, kParts> keys;
  [[maybe_unused]] PageScales own_scales;
  const auto load_keys =
      [&](const AttentionPage<Cached>& page, int begin, int end) {
        keys.Load(page, head_dim, begin, end);
        if constexpr (kHasScales) own_scales.Load(args, page, begin, end);
      };
  const AttentionPage<Cached>& first = dealer.page(0);
  int early = 0;
  if (first.keys != nullptr) {
    early = kMayBeginEarly ? first.EarlierTokens() : 0;
    load_keys(first, 0, early);
    values.Copy(first.Values(args), head_dim, 0, early);
  }
  dealer.Deal(args, 1);
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  if (first.keys != nullptr && early < first.tokens()) {
    load_keys(first, early, first.tokens());
    values.Copy(first.Values(args), head_dim, early, first.tokens());
    ClearValues(head_dim, first.tokens(), values.values());
  }
  const int warp = threadIdx.x / kWarp;
  SoftmaxPart softmax = NoTokens();  // of the warp's head
  OutputSums<kParts> outputs;
  for (int turn = 0; dealer.page(turn).keys != nullptr; ++turn) {
    const AttentionPage<Cached>& page = dealer.page(turn);
    keys.Score(WarpQueries<kParts>(args, page), page, group, head_dim, rows);
    if constexpr (kHasScales) own_scales.Put(scales);
    __syncthreads();
    const AttentionPage<Cached>& next = dealer.page(turn + 1);
    if (next.keys != nullptr) load_keys(next, 0, next.tokens());
    dealer.Deal(args, turn + 2);
    if (warp < group) {
      if constexpr (kHasScales) Scale(scales.keys, rows.scores[warp]);
      const SoftmaxPart part = Exponentials(rows.scores[warp]);
      if constexpr (kHasScales) Scale(scales.values, rows.scores[warp]);
      RoundWeights(rows, warp);
      AddPage(args, page, part, softmax, rows.factors[warp]);
    }
    values.Wait(head_dim, page.tokens());
    __syncthreads();
    outputs.Add(args, page, rows, values.values());
    __syncthreads();
    if (next.keys != nullptr) {
      values.Copy(next.Values(args), head_dim, 0, next.tokens());
      ClearValues(head_dim, next.tokens(), values.values());
    }
    if (page.is_last) {
      CombineIfLast<BFloat16>(args, page, dealer.pages_per_block(), state);
    }
  }
}

// Launches as many blocks as the device can run at a time, but no more than
// there are pages.
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
                      places, args.rows.num_rows * NumPages(args.max_tokens))),
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

template <typename Cached>
int LaunchBFloat16(const DecodeAttentionArgs& args, void* stream) {
  const auto head_dim = static_cast<int>(args.head_dim);
  const size_t bytes = BlockValues<Cached>::Bytes(head_dim);
  constexpr size_t kStatic = sizeof(PageDealer<Cached>) + sizeof(HeadRows) +
                             sizeof(CombineState) + sizeof(PageScales::Shared) +
                             kSharedOfSystem;
  const int blocks =
      kBlocks * (bytes + kStatic) <= kSharedOfMultiprocessor ? kBlocks : 1;
  const auto launch = [&]<int kParts>() {
    return LaunchKernel<&AttendBFloat16<Cached, kParts>>(
        args, stream, blocks, bytes);
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
  const bool is_float8 = args->cache.is_float8;
  if (!FitsDecodeAttention(args->heads, args->kv_heads, args->head_dim) ||
      NumPages(args->max_tokens) > kMaxPages ||
      (is_float8 &&
       (number != CudaNumber::kBFloat16 || !FitsFloat8(args->head_dim)))) {
    return static_cast<int>(cudaErrorInvalidValue);
  }
  if (number == CudaNumber::kFloat32) return LaunchFloat(*args, stream);
  return is_float8 ? LaunchBFloat16<Float8>(*args, stream)
                   : LaunchBFloat16<BFloat16>(*args, stream);
}

}  // namespace dapd
