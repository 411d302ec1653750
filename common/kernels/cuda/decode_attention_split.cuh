// Shared parts of the kernels of decode attention: which tokens a block attends
// to and when, the softmax over them, and how the last block of a row's KV head
// combines its splits.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"

namespace dapd {

inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
static_assert(kMaxHeadGroup <= kAttentionWarps);

// Layout of the splits' partial results in the scratch.
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

// The tokens of one page, which a block attends to at a time.
template <typename T>
struct AttentionSplit {
  int row;
  int index;
  int length;     // of the sequence
  int blocks;     // blocks that attend to splits of the row, for this KV head
  bool is_last;   // whether it is the calling block's last split of the row
  const T* keys;  // [tokens, head_dim]; null: no such split

  __device__ static int KvHead() { return static_cast<int>(blockIdx.y); }

  __device__ int tokens() const {
    return min(length - index * kSplitTokens, kSplitTokens);
  }
  // Returns how many tokens earlier steps have written: all but the sequence's
  // newest token.
  __device__ int EarlierTokens() const {
    return min(length - 1 - index * kSplitTokens, kSplitTokens);
  }
  // Returns the values, laid out like the keys.
  __device__ const T* Values(const DecodeAttentionArgs& args) const {
    return keys + args.kv_heads * kSplitTokens * args.head_dim;
  }
  // Returns the first of the query heads that share the KV head, counted over
  // the heads of all rows.
  __device__ int64_t FirstHead(const DecodeAttentionArgs& args) const {
    return row * args.heads + KvHead() * (args.heads / args.kv_heads);
  }
};

// Deals the existing splits to the blocks of a KV head, the same number of
// consecutive splits to each. The time of a row then follows its length, an
// unused row costs nothing, and only few blocks have to count themselves where
// a row ends. The state is in shared memory; the block's last warp deals,
// because it has the least other work. The dealer reads past the L1 cache,
// since it may run before WaitForLaunchBefore.
template <typename T>
class SplitDealer {
 public:
  // Deals the first split.
  __device__ void Begin(const DecodeAttentionArgs& args) {
    if (Lane() < 0) return;
    ReadRows(args, 0, 0);
    int total = 0;
#pragma unroll 4
    for (int row = kWarp + Lane(); row < NumRows(args); row += kWarp) {
      total += static_cast<int>(NumSplits(LengthOf(args, SlotOf(args, row))));
    }
    total = end_[kWarp - 1] + ButterflySum<kWarp>(total);
    if (Lane() == 0) {
      first_row_ = 0;
      total_ = total;
      const auto blocks = static_cast<int>(gridDim.x);
      splits_per_block_ = max(1, (total + blocks - 1) / blocks);
    }
    __syncwarp();
    Deal(args, 0);
  }

  // Deals the split of `turn`. It can be read after the next barrier. By then
  // no thread reads the split of three turns before.
  __device__ void Deal(const DecodeAttentionArgs& args, int turn) {
    const int lane = Lane();
    if (lane < 0) return;
    AttentionSplit<T>& split = splits_[turn % kDealt];
    // `next` counts over the splits of all rows.
    const int next = static_cast<int>(blockIdx.x) * splits_per_block_ + turn;
    if (turn >= splits_per_block_ || next >= total_) {
      if (lane == 0) split.keys = nullptr;
      return;
    }
    int first_row = first_row_;
    while (next >= end_[kWarp - 1]) {
      first_row += kWarp;
      ReadRows(args, first_row, end_[kWarp - 1]);
    }
    const int at = __popc(__ballot_sync(kAllLanes, end_[lane] <= next));
    __syncwarp();  // all lanes have read
    if (lane != 0) return;
    first_row_ = first_row;
    const int begin = end_[at] - static_cast<int>(NumSplits(length_[at]));
    split.row = first_row + at;
    split.length = length_[at];
    split.index = next - begin;
    split.blocks =
        (end_[at] - 1) / splits_per_block_ - begin / splits_per_block_ + 1;
    split.is_last = turn + 1 == splits_per_block_ || next + 1 == end_[at];
    split.keys = CachedTokens<T>(args.cache,
                                 slot_[at],
                                 split.index,
                                 CachedPart::kKeys,
                                 args.kv_heads,
                                 split.KvHead(),
                                 args.head_dim);
  }

  // Returns the split of `turn`; the first turn is 0.
  __device__ const AttentionSplit<T>& split(int turn) const {
    return splits_[turn % kDealt];
  }

 private:
  // One split is attended to, one is loaded and one is dealt at the same time.
  static constexpr int kDealt = 3;

  // Returns the lane in the warp that deals, a negative number in other warps.
  __device__ static int Lane() {
    return static_cast<int>(threadIdx.x) - (kAttentionThreads - kWarp);
  }
  __device__ static int NumRows(const DecodeAttentionArgs& args) {
    return static_cast<int>(args.rows.num_rows);
  }
  __device__ static int SlotOf(const DecodeAttentionArgs& args, int row) {
    return row < NumRows(args) ? __ldcg(args.rows.slot_of_row + row) : -1;
  }
  __device__ static int LengthOf(const DecodeAttentionArgs& args, int slot) {
    return slot < 0 ? 0 : __ldcg(args.rows.positions + slot) + 1;
  }

  // Each lane reads one row. `before` is the number of splits of the rows in
  // front.
  __device__ void ReadRows(const DecodeAttentionArgs& args,
                           int first_row,
                           int before) {
    const int lane = Lane();
    const int slot = SlotOf(args, first_row + lane);
    const int length = LengthOf(args, slot);
    auto end = static_cast<int>(NumSplits(length));
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int of_others = __shfl_up_sync(kAllLanes, end, step);
      if (lane >= step) end += of_others;
    }
    __syncwarp();
    slot_[lane] = slot;
    length_[lane] = length;
    end_[lane] = before + end;
    __syncwarp();
  }

  AttentionSplit<T> splits_[kDealt];
  int total_;  // splits of all rows
  int splits_per_block_;
  int first_row_;
  // State of the lane's row. `end_` counts the splits of all rows up to the
  // row's last split.
  int slot_[kWarp];
  int length_[kWarp];
  int end_[kWarp];
};

// One warp replaces the scores of a head by exp(score - max).
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

// One warp computes the weights of a head's splits. Returns the sum of their
// softmax parts under these weights.
__device__ inline float SplitWeights(const SoftmaxPart* parts,
                                     int splits,
                                     float* weights) {
  const int lane = threadIdx.x % kWarp;
  float max = -INFINITY;
  for (int i = lane; i < splits; i += kWarp) {
    max = fmaxf(max, parts[i].max);
  }
  max = ButterflyMax(max);
  float sum = 0.0F;
  for (int i = lane; i < splits; i += kWarp) {
    weights[i] = expf(parts[i].max - max);
    sum = fmaf(weights[i], parts[i].sum, sum);
  }
  return ButterflySum<kWarp>(sum);
}

// Returns whether the calling block is the last of `blocks` blocks that get
// here, each after a barrier. The last block sees all earlier writes of the
// others and sets `counter` back to 0. `answer` is in shared memory. One thread
// fences for the whole block, because the barrier puts the other threads'
// writes in front of its fence; a fence in every thread would wait for that
// thread's loads, and the loads of the next split are under way.
__device__ inline bool IsLastBlock(uint32_t* counter,
                                   int blocks,
                                   bool& answer) {
  if (blocks == 1) return true;
  if (threadIdx.x == 0) {
    const auto last = static_cast<uint32_t>(blocks - 1);
    __threadfence();
    answer = atomicInc(counter, last) == last;
    __threadfence();
  }
  __syncthreads();
  return answer;
}

// Shared memory that combining needs beside the splits' weights.
struct CombineState {
  float totals[kMaxHeadGroup];
  bool is_last;
};

// Runs at a block's last split of a row, after a barrier that follows the
// block's writes: the last block of the row's KV head combines its splits.
// `weights` [group, kMaxSplits] is shared memory that no thread reads any more.
template <typename T>
__device__ void CombineIfLast(const DecodeAttentionArgs& args,
                              const AttentionSplit<T>& split,
                              float* weights,
                              CombineState& state) {
  uint32_t* counter =
      args.counters + split.row * args.kv_heads + split.KvHead();
  if (!IsLastBlock(counter, split.blocks, state.is_last)) return;
  const auto splits = static_cast<int>(NumSplits(split.length));
  const AttentionScratch scratch = ScratchOf(args);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  const int head_dim = static_cast<int>(args.head_dim);
  const int64_t first = split.FirstHead(args);
  const int warp = threadIdx.x / kWarp;
  if (warp < group) {
    const float total =
        SplitWeights(scratch.parts + (first + warp) * scratch.splits,
                     splits,
                     weights + warp * kMaxSplits);
    if (threadIdx.x % kWarp == 0) state.totals[warp] = total;
  }
  __syncthreads();
  T* out = static_cast<T*>(args.out) + split.row * args.out_stride +
           split.KvHead() * group * head_dim;
  for (int i = 2 * static_cast<int>(threadIdx.x); i < group * head_dim;
       i += 2 * kAttentionThreads) {
    const int g = i / head_dim;
    const float* outputs = scratch.outputs +
                           (first + g) * scratch.splits * head_dim +
                           i % head_dim;
    float sums[2] = {};
    // The loads take the time, so many of them are under way; the outputs
    // behind the last split count as zeros.
    constexpr int kBatch = 16;
    for (int begin = 0; begin < splits; begin += kBatch) {
      Vector2<float> batch[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        batch[j] = {};
        if (begin + j < splits) {
          batch[j] = Load2(outputs + (begin + j) * head_dim);
        }
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const float weight =
            weights[g * kMaxSplits + min(begin + j, splits - 1)];
        sums[0] = fmaf(weight, batch[j].value[0], sums[0]);
        sums[1] = fmaf(weight, batch[j].value[1], sums[1]);
      }
    }
    out[i] = FromFloat<T>(sums[0] / state.totals[g]);
    out[i + 1] = FromFloat<T>(sums[1] / state.totals[g]);
  }
}

}  // namespace dapd
