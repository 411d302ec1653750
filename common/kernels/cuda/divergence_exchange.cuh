// How the blocks of a cluster add up what each has found in its part of a
// token's rows (divergence_cluster.h): a warp's lanes, a block's warps, the
// cluster's blocks, always in the same order.
#pragma once

#include <cfloat>

#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"

// Clusters are sm_90's; for what is older the kernel is compiled empty.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define DAPD_HAS_CLUSTERS 1
#endif

namespace dapd {

inline constexpr int kClusterWarps = kClusterThreads / kWarp;

// A part of a row's statistics: of a lane, a warp, a block.
struct RowPart {
  double max = -FLT_MAX;
  double sum = 0.0;  // of exp(scale (z - max))
};

// A part of a term's sums.
struct SumPart {
  double clipped = 0.0;
  double unclipped = 0.0;
  double mass = 0.0;
  int64_t any_clipped = 0;
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

__device__ inline float BesideMaximum(double max, double most, float factor) {
  return ScaledExp(
      static_cast<float>(max), static_cast<float>(most), factor, Exp2Of{});
}

// `factor`: the scale times kLog2OfE.
__device__ inline void AddPart(const RowPart& other,
                               float factor,
                               RowPart* part) {
  const double most = part->max > other.max ? part->max : other.max;
  part->sum = part->sum * BesideMaximum(part->max, most, factor) +
              other.sum * BesideMaximum(other.max, most, factor);
  part->max = most;
}

__device__ inline void AddPart(const SumPart& other,
                               float /*factor*/,
                               SumPart* part) {
  part->clipped += other.clipped;
  part->unclipped += other.unclipped;
  part->mass += other.mass;
  part->any_clipped |= other.any_clipped;
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
  // warps' in exchange.of_warp; read(i, part) in thread i.
  template <typename Part, int kCount, typename Factor, typename Read>
  __device__ void Combine(Exchange<Part, kCount>& exchange,
                          int count,
                          const Factor& factor_of,
                          const Read& read) {
    const auto thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    for (int i = thread; i < count * blocks_; i += kClusterThreads) {
      const int of = i % count;
      Part part = exchange.of_warp[0][of];
      for (int warp = 1; warp < kClusterWarps; ++warp) {
        AddPart(exchange.of_warp[warp][of], factor_of(of), &part);
      }
      auto* inbox = static_cast<Part*>(__cluster_map_shared_rank(
          &exchange.inbox[turn_][rank_][of], static_cast<unsigned>(i / count)));
      *inbox = part;
    }
    ClusterSync();
    if (thread < count) {
      const int of = thread;
      Part part = exchange.inbox[turn_][0][of];
      for (int block = 1; block < blocks_; ++block) {
        AddPart(exchange.inbox[turn_][block][of], factor_of(of), &part);
      }
      read(of, part);
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
