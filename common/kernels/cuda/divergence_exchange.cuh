// How the blocks of a cluster add up what each has found in its part of a
// token's rows (divergence_cluster.h): a warp's lanes, a block's warps, the
// cluster's blocks, always in the same order. The parts of warps and of blocks
// are added by the lanes of a warp.
#pragma once

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

// What blocks tell each other.
template <typename Part, int kCount>
struct Exchange {
  Part of_warp[kClusterWarps][kCount];
  // Written by the cluster's blocks, in turns: the other half may still be
  // read.
  Part inbox[2][kClusterMaxBlocks][kCount];
};

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

__device__ inline void ClusterSync() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

// A block's place among those of its cluster.
class ClusterExchange {
 public:
  // `blocks`: of the cluster.
  __device__ explicit ClusterExchange(int blocks)
      : blocks_(blocks),
        rank_(static_cast<int>(__clusterRelativeBlockRank())) {}

  __device__ int rank() const { return rank_; }

  // All blocks' parts of `count` numbers, of which every block has brought its
  // warps' in exchange.of_warp; read(i, part) in the first lane of warp i.
  template <typename Part, int kCount, typename Factor, typename Read>
  __device__ void Combine(Exchange<Part, kCount>& exchange,
                          int count,
                          const Factor& factor_of,
                          const Read& read) {
    static_assert(kCount <= kClusterWarps);
    const auto of = static_cast<int>(threadIdx.x) / kWarp;
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    __syncthreads();
    if (of < count) {
      const Part part =
          AddParts(lane < kClusterWarps ? exchange.of_warp[lane][of] : Part{},
                   factor_of(of));
      if (lane < blocks_) {
        *static_cast<Part*>(__cluster_map_shared_rank(
            &exchange.inbox[turn_][rank_][of], static_cast<unsigned>(lane))) =
            part;
      }
    }
    ClusterSync();
    if (of < count) {
      const Part part =
          AddParts(lane < blocks_ ? exchange.inbox[turn_][lane][of] : Part{},
                   factor_of(of));
      if (lane == 0) read(of, part);
    }
    turn_ ^= 1;
    __syncthreads();
  }

 private:
  int blocks_;
  int rank_;
  int turn_ = 0;  // which half of an inbox is written next
};

#endif  // DAPD_HAS_CLUSTERS

}  // namespace dapd
