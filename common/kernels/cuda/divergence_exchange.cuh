// How the blocks of a cluster add up what each has found in its part of a
// token's rows (divergence_cluster.h): a warp's lanes, a block's warps, the
// cluster's blocks, always in the same order. The parts of warps and of blocks
// are added by the lanes of a warp.
#pragma once

#include <algorithm>

#include "common/kernels/cuda/cluster_messages.cuh"
#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"

// Clusters are sm_90's; for what is older the kernel is compiled empty.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define DAPD_HAS_CLUSTERS 1
#endif

namespace dapd {

inline constexpr int kClusterWarps = kClusterThreads / kWarp;

// Lanes that add up parts, at least as many as there are of these.
inline constexpr int kPartLanes = 16;
static_assert(kClusterWarps <= kPartLanes && kClusterMaxBlocks <= kPartLanes);

// A part of a row's statistics: of a lane, a warp, a block.
struct RowPart {
  float max = kLeastMax;
  double sum = 0.0;  // of BesideBase
};

// A part of a term's sums.
struct SumPart {
  double clipped = 0.0;
  double unclipped = 0.0;
  double mass = 0.0;
  double any_clipped = 0.0;  // warps that have clipped any
};

// What a block's warps have found.
template <typename Part, int kCount>
struct WarpParts {
  Part of_warp[kClusterWarps][kCount];
};

// Where a block gets what the cluster's blocks tell it in a turn.
struct Inbox {
  static constexpr size_t kBytes =
      kClusterMaxBlocks * std::max(kClusterMaxMeasures * sizeof(RowPart),
                                   kClusterMaxTerms * sizeof(SumPart));

  alignas(16) unsigned char bytes[kBytes];
  MessageCount arrived;

  // By block.
  template <typename Part, int kCount>
  __device__ Part (*Parts())[kCount] {
    static_assert(sizeof(Part[kClusterMaxBlocks][kCount]) <= kBytes);
    return reinterpret_cast<Part(*)[kCount]>(bytes);
  }
};

// In turns. Who sends in a turn has got what all blocks sent in the turn
// before, which each of them did after it had read what was sent in the one
// before that.
inline constexpr int kInboxes = 2;

#ifdef DAPD_HAS_CLUSTERS

// The sum of what kPartLanes lanes have, in each of them. `factor`: the scale
// times kLog2OfE.
__device__ inline RowPart AddParts(const RowPart& own, float factor) {
  const float most = ButterflyMax<kPartLanes>(own.max);
  const float beside =
      exp2f(ExponentBase(own.max, factor) - ExponentBase(most, factor));
  return {most, ButterflySum<kPartLanes>(own.sum * beside)};
}

__device__ inline SumPart AddParts(const SumPart& own, float /*factor*/) {
  return {ButterflySum<kPartLanes>(own.clipped),
          ButterflySum<kPartLanes>(own.unclipped),
          ButterflySum<kPartLanes>(own.mass),
          ButterflySum<kPartLanes>(own.any_clipped)};
}

// A block's place among those of its cluster, and what it sends them and gets
// from them. Every block takes the same turns. A block may end behind its last:
// nothing more is sent to it.
class ClusterExchange {
 public:
  // `blocks`: of the cluster. `inboxes`: shared.
  __device__ ClusterExchange(int blocks, Inbox (&inboxes)[kInboxes])
      : blocks_(blocks),
        rank_(static_cast<int>(__clusterRelativeBlockRank())),
        inboxes_(inboxes) {}

  __device__ int rank() const { return rank_; }

  // Before the first turn: all blocks are there before one writes to another.
  __device__ void Open() const {
    if (threadIdx.x == 0) {
      for (Inbox& inbox : inboxes_) InitCount(&inbox.arrived);
    }
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }

  // All blocks' parts of `count` numbers, at least one, of which every block
  // has brought its warps'; read(i, part) in the first lane of warp i. Calls
  // beside() in all threads while they are under way.
  template <typename Part,
            int kCount,
            typename Factor,
            typename Read,
            typename Beside>
  __device__ void Combine(const WarpParts<Part, kCount>& parts,
                          int count,
                          const Factor& factor_of,
                          const Read& read,
                          const Beside& beside) {
    static_assert(kCount <= kClusterWarps);
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
      const Part part =
          AddParts(lane < kClusterWarps ? parts.of_warp[lane][of] : Part{},
                   factor_of(of));
      if (lane < blocks_) {
        SendTo(lane, &by_block[rank_][of], part, &inbox.arrived);
      }
    }
    beside();
    if (of < count) {
      WaitForBytes(&inbox.arrived, turn_ / kInboxes % 2);
      const Part part =
          AddParts(lane < blocks_ ? by_block[lane][of] : Part{}, factor_of(of));
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
