// Adds up what the blocks of a cluster found in their parts of a token's rows
// (divergence_cluster.h): over a warp's lanes, a block's warps and the
// cluster's blocks, always in the same order. The lanes of a warp add the parts
// of warps and of blocks.
#pragma once

#include <algorithm>

#include "common/kernels/cuda/cluster_messages.cuh"
#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"

// Clusters need sm_90; for older devices the kernel is compiled empty.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define DAPD_HAS_CLUSTERS 1
#endif

namespace dapd {

// The lanes that add up the parts of blocks. There must be at least as many
// lanes as parts.
inline constexpr int kBlockLanes = 16;
static_assert(kClusterMaxBlocks <= kBlockLanes);

// A part of a row's statistics, from a lane, a warp or a block.
struct RowPart {
  float max = kLeastMax;
  double sum = 0.0;  // of BesideBase
};

// A part of a term's sums.
struct SumPart {
  double clipped = 0.0;
  double unclipped = 0.0;
  double mass = 0.0;
  double any_clipped = 0.0;  // warps that have clipped an entry
};

// The parts that a block's warps have found.
template <int kWarps, typename Part, int kCount>
struct WarpParts {
  Part of_warp[kWarps][kCount];
};

// A block receives here what the cluster's blocks send to it in one turn.
struct Inbox {
  static constexpr size_t kBytes =
      kClusterMaxBlocks * std::max(kClusterMaxMeasures * sizeof(RowPart),
                                   kClusterMaxTerms * sizeof(SumPart));

  alignas(16) unsigned char bytes[kBytes];
  MessageCount arrived;

  // Returns the parts by block.
  template <typename Part, int kCount>
  __device__ Part (*Parts())[kCount] {
    static_assert(sizeof(Part[kClusterMaxBlocks][kCount]) <= kBytes);
    return reinterpret_cast<Part(*)[kCount]>(bytes);
  }
};

// Two inboxes alternate. A block that sends in a turn has received what all
// blocks sent in the turn before, and each of them sent it after it had read
// the inbox of the turn before that. So no unread inbox is overwritten.
inline constexpr int kInboxes = 2;

#ifdef DAPD_HAS_CLUSTERS

// Returns the sum of the parts of kLanes lanes, in each of these lanes.
// `factor` is the scale times kLog2OfE.
template <int kLanes>
__device__ inline RowPart AddParts(const RowPart& own, float factor) {
  const float most = ButterflyMax<kLanes>(own.max);
  const float beside =
      exp2f(ExponentBase(own.max, factor) - ExponentBase(most, factor));
  return {most, ButterflySum<kLanes>(own.sum * beside)};
}

template <int kLanes>
__device__ inline SumPart AddParts(const SumPart& own, float /*factor*/) {
  return {ButterflySum<kLanes>(own.clipped),
          ButterflySum<kLanes>(own.unclipped),
          ButterflySum<kLanes>(own.mass),
          ButterflySum<kLanes>(own.any_clipped)};
}

// A block's place in its cluster and its messages to and from the cluster's
// blocks. Every block has kWarps warps and takes the same turns. A block may
// end after its last turn: nothing more is sent to it.
template <int kWarps>
class ClusterExchange {
 public:
  // `blocks` is the size of the cluster. `inboxes` are shared variables.
  __device__ ClusterExchange(int blocks, Inbox (&inboxes)[kInboxes])
      : blocks_(blocks),
        rank_(static_cast<int>(__clusterRelativeBlockRank())),
        inboxes_(inboxes) {}

  __device__ int rank() const { return rank_; }

  // Must be called before the first turn: it waits until all blocks have
  // started, since no block may write to a block that has not.
  __device__ void Open() const {
    if (threadIdx.x == 0) {
      for (Inbox& inbox : inboxes_) InitCount(&inbox.arrived);
    }
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }

  // Adds up `count` numbers, at least one, over all blocks; every block has put
  // the parts of its warps into `parts`. Calls read(i, part) in the first lane
  // of warp i, and beside() in all threads while the messages are under way.
  template <typename Part,
            int kCount,
            typename Factor,
            typename Read,
            typename Beside>
  __device__ void Combine(const WarpParts<kWarps, Part, kCount>& parts,
                          int count,
                          const Factor& factor_of,
                          const Read& read,
                          const Beside& beside) {
    static_assert(kCount <= kWarps);
    const auto of = static_cast<int>(threadIdx.x) / kWarp;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    Inbox& inbox = inboxes_[turn_ % kInboxes];
    const auto by_block = inbox.template Parts<Part, kCount>();
    __syncthreads();
    if (threadIdx.x == 0) {
      ExpectBytes(&inbox.arrived,
                  blocks_ * count * static_cast<int>(sizeof(Part)));
    }
    if (of < count) {
      const Part part = AddParts<kWarps>(
          lane < kWarps ? parts.of_warp[lane][of] : Part{}, factor_of(of));
      if (lane < blocks_) {
        SendTo(lane, &by_block[rank_][of], part, &inbox.arrived);
      }
    }
    beside();
    if (of < count) {
      WaitForBytes(&inbox.arrived, turn_ / kInboxes % 2);
      const Part part = AddParts<kBlockLanes>(
          lane < blocks_ ? by_block[lane][of] : Part{}, factor_of(of));
      if (lane == 0) read(of, part);
    }
    ++turn_;
    __syncthreads();
  }

 private:
  int blocks_;
  int rank_;
  Inbox (&inboxes_)[kInboxes];
  int turn_ = 0;
};

#endif  // DAPD_HAS_CLUSTERS

}  // namespace dapd
