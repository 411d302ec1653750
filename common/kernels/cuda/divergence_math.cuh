// What both forms of the loss kernel compute with (divergence_kernel.h).
#pragma once

#include <cfloat>
#include <cmath>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

inline constexpr float kLog2OfE = 1.4426950408889634F;

struct FloatMath {
  __device__ float Exp(float x) const { return expf(x); }
  __device__ float Log(float x) const { return logf(x); }
  __device__ float Tanh(float x) const { return tanhf(x); }
};

// For ScaledExp with a scale times kLog2OfE: one instruction and a product.
struct Exp2Of {
  __device__ float operator()(float x) const { return exp2f(x); }
};

// The statistics of what a thread has seen of a row; `factor` is the scale
// times kLog2OfE.
struct RunningRow {
  float max = -FLT_MAX;
  float sum = 0.0F;  // of exp(scale (z - max))

  template <int kCount>
  __device__ void Take(const float (&z)[kCount], float factor) {
    float most = max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = fmaxf(most, z[i]);
    sum *= ScaledExp(max, most, factor, Exp2Of{});
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum += ScaledExp(z[i], most, factor, Exp2Of{});
    }
    max = most;
  }

  // What the sum is beside a larger maximum.
  __device__ float SumBeside(float larger, float factor) const {
    return sum * ScaledExp(max, larger, factor, Exp2Of{});
  }
};

__device__ inline RowStatistics StatisticsOf(float max,
                                             double sum,
                                             float scale) {
  return {max,
          static_cast<float>(1.0 / sum),
          static_cast<double>(max) * scale + log(sum)};
}

// A term's sums over what a thread has seen, before the token's weight.
struct RunningSums {
  float clipped = 0.0F;
  float unclipped = 0.0F;
  float mass = 0.0F;
  bool any_clipped = false;

  // `clip`: the term's.
  __device__ void Take(const ClippedEntry<float>& entry, float clip) {
    clipped += entry.clipped;
    unclipped += entry.component;
    mass += entry.pull;
    any_clipped |= entry.component > clip;
  }
};

// A term over one token and the whole vocabulary, but for its rows.
struct TermEntries {
  RowStatistics q;
  RowStatistics p;
  DivergenceKind kind;
  float beta;
  float clip;
  float scale;
  float weight;  // the term's and the token's
  float lse_difference;

  __device__ float ProbabilityOf(float z, const RowStatistics& row) const {
    return ScaledExp(z, row.max, scale * kLog2OfE, Exp2Of{}) * row.inverse_sum;
  }

  // `p_of_entry`: the student's probability. All threads of a block take the
  // same way.
  __device__ ClippedEntry<float> At(float zq,
                                    float zp,
                                    float p_of_entry) const {
    return WithKind(kind, [&]<DivergenceKind kKind>() {
      return EntryOf<kKind>(ProbabilityOf(zq, q),
                            p_of_entry,
                            LogRatio(zq, zp, scale, lse_difference),
                            beta,
                            clip,
                            FloatMath{});
    });
  }
};

__device__ inline TermEntries EntriesOf(const DivergenceTerm& term,
                                        const RowStatistics& q,
                                        const RowStatistics& p,
                                        float scale,
                                        int64_t token) {
  return {q,
          p,
          term.kind,
          term.beta,
          term.clip,
          scale,
          term.weight * TokenWeight(term, token),
          static_cast<float>(q.log_sum_exp - p.log_sum_exp)};
}

}  // namespace dapd
