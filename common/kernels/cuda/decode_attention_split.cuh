// Shared parts of the kernels of decode attention: which pages a block attends
// to and when, the softmax over them, how a block adds the pages of a split,
// and how the last block of a row's KV head combines the splits.
#pragma once

#include <cstdint>

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"

namespace dapd {

inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
static_assert(kMaxHeadGroup <= kAttentionWarps);

// Layout of the partial results in the scratch. A result of one page is at the
// page's index, the result of a whole split at the index of its first page.
struct AttentionScratch {
  SoftmaxPart* parts;  // [rows, heads, pages]
  float* outputs;      // [rows, heads, pages, head_dim]
  int64_t pages;
};

__device__ inline AttentionScratch ScratchOf(const DecodeAttentionArgs& args) {
  const int64_t pages = NumPages(args.max_tokens);
  const int64_t parts = args.rows.num_rows * args.heads * pages;
  return {reinterpret_cast<SoftmaxPart*>(args.scratch),
          args.scratch + 2 * parts,
          pages};
}

// The pages of all rows, one row after the other, are dealt to the blocks of a
// KV head in runs of `pages_per_block`. Returns whether a run has both pages.
__device__ inline bool AreOfOneBlock(int page,
                                     int other_page,
                                     int pages_per_block) {
  return page / pages_per_block == other_page / pages_per_block;
}

// A page of a row, which a block attends to at a time. T is the type of the
// cache's numbers.
template <typename T>
struct AttentionPage {
  int row;
  int index;
  int length;      // of the sequence
  int first;       // pages of the rows in front of the row
  int blocks;      // blocks that attend to pages of the row, for this KV head
  bool is_last;    // whether it is the calling block's last page of the row
  bool is_folded;  // whether the calling block has all pages of its split and
                   // adds them up
  const T* keys;   // [tokens, head_dim]; null: no such page

  __device__ static int KvHead() { return static_cast<int>(blockIdx.y); }

  __device__ int tokens() const {
    return min(length - index * kPageTokens, kPageTokens);
  }
  // Returns how many tokens earlier steps have written: all but the sequence's
  // newest token.
  __device__ int EarlierTokens() const {
    return min(length - 1 - index * kPageTokens, kPageTokens);
  }
  // Returns the values, laid out like the keys.
  __device__ const T* Values(const DecodeAttentionArgs& args) const {
    return keys + args.kv_heads * CachedPartSize<T>(args.head_dim);
  }
  // Returns the first of the query heads that share the KV head, counted over
  // the heads of all rows.
  __device__ int64_t FirstHead(const DecodeAttentionArgs& args) const {
    return row * args.heads + KvHead() * (args.heads / args.kv_heads);
  }
  // Returns whether a sum begins with this page.
  __device__ bool BeginsSum() const {
    return !is_folded || index % kSplitPages == 0;
  }
  // Returns whether the sum is complete with this page, and is written.
  __device__ bool EndsSum() const {
    return !is_folded || index % kSplitPages == kSplitPages - 1 ||
           index + 1 == NumPages(length);
  }
  // Returns the place of the sum in the scratch, for one head.
  __device__ int64_t PlaceOf(const AttentionScratch& scratch,
                             int64_t head) const {
    return head * scratch.pages +
           (is_folded ? index - index % kSplitPages : index);
  }
};

// Deals the existing pages to the blocks of a KV head, the same number of
// consecutive pages to each. The time of a row then follows its length, an
// unused row costs nothing, and only few blocks have to count themselves where
// a row ends. The state is in shared memory; the block's last warp deals,
// because it has the least other work. The dealer reads past the L1 cache,
// since it may run before WaitForLaunchBefore.
template <typename T>
class PageDealer {
 public:
  // Deals the first page.
  __device__ void Begin(const DecodeAttentionArgs& args) {
    if (Lane() < 0) return;
    ReadRows(args, 0, 0);
    int total = 0;
#pragma unroll 4
    for (int row = kWarp + Lane(); row < NumRows(args); row += kWarp) {
      total += static_cast<int>(NumPages(LengthOf(args, SlotOf(args, row))));
    }
    total = end_[kWarp - 1] + ButterflySum<kWarp>(total);
    if (Lane() == 0) {
      first_row_ = 0;
      total_ = total;
      const auto blocks = static_cast<int>(gridDim.x);
      pages_per_block_ = max(1, (total + blocks - 1) / blocks);
    }
    __syncwarp();
    Deal(args, 0);
  }

  // Deals the page of `turn`. It can be read after the next barrier. By then no
  // thread reads the page of three turns before.
  __device__ void Deal(const DecodeAttentionArgs& args, int turn) {
    const int lane = Lane();
    if (lane < 0) return;
    AttentionPage<T>& page = pages_[turn % kDealt];
    // `next` counts over the pages of all rows.
    const int next = static_cast<int>(blockIdx.x) * pages_per_block_ + turn;
    if (turn >= pages_per_block_ || next >= total_) {
      if (lane == 0) page.keys = nullptr;
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
    const int begin = end_[at] - static_cast<int>(NumPages(length_[at]));
    page.row = first_row + at;
    page.length = length_[at];
    page.first = begin;
    page.index = next - begin;
    const int split = next - page.index % kSplitPages;
    page.is_folded = AreOfOneBlock(
        split, min(split + kSplitPages, end_[at]) - 1, pages_per_block_);
    page.blocks =
        (end_[at] - 1) / pages_per_block_ - begin / pages_per_block_ + 1;
    page.is_last = turn + 1 == pages_per_block_ || next + 1 == end_[at];
    page.keys = CachedTokens<T>(args.cache,
                                slot_[at],
                                page.index,
                                CachedPart::kKeys,
                                args.kv_heads,
                                page.KvHead(),
                                args.head_dim);
  }

  // Returns the page of `turn`; the first turn is 0.
  __device__ const AttentionPage<T>& page(int turn) const {
    return pages_[turn % kDealt];
  }
  __device__ int pages_per_block() const { return pages_per_block_; }

 private:
  // One page is attended to, one is loaded and one is dealt at the same time.
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

  // Each lane reads one row. `before` is the number of pages of the rows in
  // front.
  __device__ void ReadRows(const DecodeAttentionArgs& args,
                           int first_row,
                           int before) {
    const int lane = Lane();
    const int slot = SlotOf(args, first_row + lane);
    const int length = LengthOf(args, slot);
    auto end = static_cast<int>(NumPages(length));
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

  AttentionPage<T> pages_[kDealt];
  int total_;  // pages of all rows
  int pages_per_block_;
  int first_row_;
  // State of the lane's row. `end_` counts the pages of all rows up to the
  // row's last page.
  int slot_[kWarp];
  int length_[kWarp];
  int end_[kWarp];
};

// One warp replaces the scores of a head by exp(score - max).
__device__ inline SoftmaxPart Exponentials(float* scores) {
  const int lane = threadIdx.x % kWarp;
  float max = -INFINITY;
#pragma unroll
  for (int t = 0; t < kPageTokens; t += kWarp) {
    max = fmaxf(max, scores[t + lane]);
  }
  max = ButterflyMax(max);
  float sum = 0.0F;
#pragma unroll
  for (int t = 0; t < kPageTokens; t += kWarp) {
    const float exponential = expf(scores[t + lane] - max);
    scores[t + lane] = exponential;
    sum += exponential;
  }
  return {max, ButterflySum<kWarp>(sum)};
}

// A warp calls this after Exponentials, for its head: it adds the page's part
// to `total`, the warp's sum, and writes a complete sum. `factors`, in shared
// memory, are for the head's outputs.
template <typename T>
__device__ void AddPage(const DecodeAttentionArgs& args,
                        const AttentionPage<T>& page,
                        const SoftmaxPart& part,
                        SoftmaxPart& total,
                        FoldFactors& factors) {
  if (page.BeginsSum()) total = NoTokens();
  const FoldFactors now = FoldPart(part, total);
  if (threadIdx.x % kWarp != 0) return;
  factors = now;
  if (!page.EndsSum()) return;
  const AttentionScratch scratch = ScratchOf(args);
  const int64_t head = page.FirstHead(args) + threadIdx.x / kWarp;
  scratch.parts[page.PlaceOf(scratch, head)] = total;
}

// Returns whether the calling block is the last of `blocks` blocks that get
// here, each after a barrier. The last block sees all earlier writes of the
// others and sets `counter` back to 0. `answer` is in shared memory. One thread
// fences for the whole block, because the barrier puts the other threads'
// writes in front of its fence; a fence in every thread would wait for that
// thread's loads, and the loads of the next page are under way. The others'
// writes are read past the L1 cache.
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

// Splits that are combined at a time.
inline constexpr int kCombined = 8;
static_assert(kCombined <= kWarp);

// Shared memory for combining. A sum is a result in the scratch, of a page or
// of a whole split.
struct CombineState {
  bool is_last;
  int num_sums;
  struct Sum {
    int index;  // of the page or of the split's first page
    int split;  // among those that are combined at a time
    bool ends;  // whether it is the last sum of the split
  } sums[kCombined * kSplitPages];
  FoldFactors sum_factors[kMaxHeadGroup][kCombined * kSplitPages];
  FoldFactors split_factors[kMaxHeadGroup][kCombined];
  float totals[kMaxHeadGroup];
};

// A warp computes, for its head, the factors of kCombined splits from split
// `begin` on and adds the splits to `total`. The first warp also lists the
// sums.
template <typename T>
__device__ void ReadParts(const DecodeAttentionArgs& args,
                          const AttentionPage<T>& page,
                          int pages_per_block,
                          int begin,
                          SoftmaxPart& total,
                          CombineState& state) {
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  // Lane l has split begin + l.
  const auto pages = static_cast<int>(NumPages(page.length));
  const int first = (begin + lane) * kSplitPages;
  const int end = lane < kCombined ? min(first + kSplitPages, pages) : 0;
  int num_sums = max(end - first, 0);
  if (num_sums > 0 &&
      AreOfOneBlock(
          page.first + first, page.first + end - 1, pages_per_block)) {
    num_sums = 1;
  }
  int sums_before = num_sums;
#pragma unroll
  for (int step = 1; step < kCombined; step *= 2) {
    const int of_others = __shfl_up_sync(kAllLanes, sums_before, step);
    if (lane >= step) sums_before += of_others;
  }
  if (warp == 0 && lane == kCombined - 1) state.num_sums = sums_before;
  sums_before -= num_sums;
  const AttentionScratch scratch = ScratchOf(args);
  const SoftmaxPart* const parts =
      scratch.parts + (page.FirstHead(args) + warp) * scratch.pages + first;
  Vector2<float> loaded[kSplitPages];
#pragma unroll
  for (int i = 0; i < kSplitPages; ++i) {
    if (i < num_sums) loaded[i] = Load2PastL1(&parts[i].max);
  }
  SoftmaxPart split = NoTokens();
#pragma unroll
  for (int i = 0; i < kSplitPages; ++i) {
    if (i >= num_sums) continue;
    const int at = sums_before + i;
    state.sum_factors[warp][at] =
        FoldPart({loaded[i].value[0], loaded[i].value[1]}, split);
    if (warp == 0) state.sums[at] = {first + i, lane, i == num_sums - 1};
  }
#pragma unroll 1
  for (int i = 0; i < kCombined; ++i) {
    const SoftmaxPart next = {__shfl_sync(kAllLanes, split.max, i),
                              __shfl_sync(kAllLanes, split.sum, i)};
    if ((begin + i) * kSplitPages >= pages) continue;
    const FoldFactors factors = FoldPart(next, total);
    if (lane == 0) state.split_factors[warp][i] = factors;
  }
  if (lane == 0) state.totals[warp] = total.sum;
}

// Adds the sums of two dimensions of head `head` of the group to `total`, from
// `outputs` [pages, head_dim].
__device__ inline void AddSums(const CombineState& state,
                               const float* outputs,
                               int head_dim,
                               int head,
                               float (&total)[2]) {
  float split[2] = {};
  // The loads take the time, so many of them are under way.
  constexpr int kBatch = 8;
  for (int begin = 0; begin < state.num_sums; begin += kBatch) {
    Vector2<float> batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      batch[i] = {};
      if (begin + i < state.num_sums) {
        batch[i] =
            Load2PastL1(outputs + state.sums[begin + i].index * head_dim);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (begin + i >= state.num_sums) continue;
      const CombineState::Sum& sum = state.sums[begin + i];
      const FoldFactors factors = state.sum_factors[head][begin + i];
#pragma unroll
      for (int d = 0; d < 2; ++d) {
        split[d] = FoldOutput(factors, batch[i].value[d], split[d]);
      }
      if (!sum.ends) continue;
      const FoldFactors of_split = state.split_factors[head][sum.split];
#pragma unroll
      for (int d = 0; d < 2; ++d) {
        total[d] = FoldOutput(of_split, split[d], total[d]);
        split[d] = 0.0F;
      }
    }
  }
}

// Runs at a block's last page of a row, after a barrier that follows the
// block's writes: the last block of the row's KV head combines its splits.
template <typename Out, typename T>
__device__ void CombineIfLast(const DecodeAttentionArgs& args,
                              const AttentionPage<T>& page,
                              int pages_per_block,
                              CombineState& state) {
  uint32_t* counter = args.counters + page.row * args.kv_heads + page.KvHead();
  if (!IsLastBlock(counter, page.blocks, state.is_last)) return;
  const auto pages = static_cast<int>(NumPages(page.length));
  const AttentionScratch scratch = ScratchOf(args);
  const int group = static_cast<int>(args.heads / args.kv_heads);
  const int head_dim = static_cast<int>(args.head_dim);
  Out* out = static_cast<Out*>(args.out) + page.row * args.out_stride +
             page.KvHead() * group * head_dim;
  const auto warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int base = 0; base < group * head_dim; base += 2 * kAttentionThreads) {
    const int i = base + 2 * static_cast<int>(threadIdx.x);
    const bool is_in = i < group * head_dim;
    const int head = i / head_dim;
    const float* outputs =
        scratch.outputs +
        (page.FirstHead(args) + head) * scratch.pages * head_dim + i % head_dim;
    SoftmaxPart total = NoTokens();
    float sums[2] = {};
    for (int begin = 0; begin * kSplitPages < pages; begin += kCombined) {
      __syncthreads();  // nobody reads the factors of the splits before
      if (warp < group) {
        ReadParts(args, page, pages_per_block, begin, total, state);
      }
      __syncthreads();
      if (is_in) AddSums(state, outputs, head_dim, head, sums);
    }
    if (!is_in) continue;
    out[i] = FromFloat<Out>(sums[0] / state.totals[head]);
    out[i + 1] = FromFloat<Out>(sums[1] / state.totals[head]);
  }
}

}  // namespace dapd
