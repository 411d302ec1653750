// Arithmetic of both forms of the loss kernel (divergence_kernel.h).
#pragma once

#include <cfloat>
#include <cmath>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_kernel.h"

namespace dapd {

inline constexpr float kLog2OfE = 1.4426950408889634F;
inline constexpr double kLogOf2 = 0.6931471805599453;
// Lies below every logit, but is small enough that the rounding of an
// exponent's base stays a finite factor.
inline constexpr float kLeastMax = -1e9F;

struct FloatMath {
  __device__ float Exp(float x) const { return expf(x); }
  __device__ float Log(float x) const { return logf(x); }
  __device__ float Tanh(float x) const { return tanhf(x); }
};

// Returns the base of a row's exponents, in powers of two: its maximum times
// `factor`, where `factor` is the scale times kLog2OfE. The product must be
// rounded by itself: contracted into another operation it would be another
// number there.
__device__ inline float ExponentBase(float max, float factor) {
#ifdef __CUDACC__
  return __fmul_rn(max, factor);
#else
  return max * factor;
#endif
}

// Returns exp(scale z) / 2^base in two instructions. ScaledExp of
// divergence_entry.h takes three and is no more exact: StatisticsOf corrects
// the rounding of the base.
__device__ inline float BesideBase(float z, float factor, float base) {
  return exp2f(fmaf(z, factor, -base));
}

// A row of logits in memory; with kNarrow it may hold bfloat16 numbers.
template <bool kNarrow>
struct LogitRow {
  float* first;

  __device__ float operator[](int64_t v) const { return first[v]; }
};
template <>
struct LogitRow<true> {
  float* first;
  bool is_narrow;

  __device__ float operator[](int64_t v) const {
    return is_narrow ? ToFloat(reinterpret_cast<const BFloat16*>(first)[v])
                     : first[v];
  }
};

// Returns the row of a source for a token.
template <bool kNarrow>
__device__ inline LogitRow<kNarrow> RowOf(const DivergenceSource& source,
                                          int64_t token) {
  const int64_t at = token * source.stride;
  if constexpr (kNarrow) {
    if (source.is_narrow) {
      auto* const row = reinterpret_cast<BFloat16*>(source.logits) + at;
      return {reinterpret_cast<float*>(row), true};
    }
  }
  return {source.logits + at};
}

// The statistics of the entries of a row that a thread has seen.
struct RunningRow {
  float max = kLeastMax;
  float sum = 0.0F;  // of the results of BesideBase

  template <int kCount>
  __device__ void Take(const float (&z)[kCount], float factor) {
    float most = max;
#pragma unroll
    for (int i = 0; i < kCount; ++i) most = fmaxf(most, z[i]);
    const float base = ExponentBase(most, factor);
    sum *= exp2f(ExponentBase(max, factor) - base);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += BesideBase(z[i], factor, base);
    max = most;
  }

  // Returns the sum with respect to a larger maximum.
  __device__ float SumBeside(float larger, float factor) const {
    return sum *
           exp2f(ExponentBase(max, factor) - ExponentBase(larger, factor));
  }
};

// `sum` adds results of BesideBase.
__device__ inline RowStatistics StatisticsOf(float max,
                                             double sum,
                                             float scale) {
  const float factor = scale * kLog2OfE;
  const double rounding = static_cast<double>(ExponentBase(max, factor)) -
                          static_cast<double>(max) * factor;
  return {max,
          static_cast<float>(1.0 / sum),
          static_cast<double>(max) * scale + log(sum) + rounding * kLogOf2};
}

// A term's sums over the entries that a thread has seen, before the token's
// weight.
struct RunningSums {
  float clipped = 0.0F;
  float above = 0.0F;  // what the clip has removed
  float mass = 0.0F;
  bool any_clipped = false;

  __device__ float unclipped() const { return clipped + above; }

  // Clips the entries and adds them. Few entries exceed the clip, so this tests
  // first whether any does, with one comparison per entry; the sum of what the
  // clip removes then costs nothing in most calls.
  template <int kCount>
  __device__ void Take(Component<float> (&entries)[kCount], float clip) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) any |= entries[i].component > clip;
    if (any) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const ClippedEntry<float> entry =
            ClipComponent(entries[i].component, entries[i].pull, clip);
        if (entry.component > clip) above += entry.component - entry.clipped;
        entries[i] = {entry.clipped, entry.pull};
      }
      any_clipped = true;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      clipped += entries[i].component;
      mass += entries[i].pull;
    }
  }
};

// Computes a row's probabilities.
struct RowEntries {
  float factor;
  float base;
  float inverse_sum;

  __device__ float ProbabilityOf(float z) const {
    return BesideBase(z, factor, base) * inverse_sum;
  }
};

__device__ inline RowEntries EntriesOfRow(const RowStatistics& row,
                                          float scale) {
  const float factor = scale * kLog2OfE;
  return {factor, ExponentBase(row.max, factor), row.inverse_sum};
}

// A term over one token and the whole vocabulary, without its rows.
struct TermEntries {
  RowEntries q;
  RowEntries p;
  DivergenceKind kind;
  float beta;
  float clip;
  float scale;
  float weight;  // the term's and the token's
  float lse_difference;

  // Returns the component before the clip. `p_of_entry` is the student's
  // probability; kKind must equal `kind`.
  template <DivergenceKind kKind>
  __device__ Component<float> At(float zq, float zp, float p_of_entry) const {
    return ComponentOf<kKind>(q.ProbabilityOf(zq),
                              p_of_entry,
                              LogRatio(zq, zp, scale, lse_difference),
                              beta,
                              FloatMath{});
  }
};

// `weight` is the token's weight in the term.
__device__ inline TermEntries EntriesOf(const DivergenceTerm& term,
                                        const RowStatistics& q,
                                        const RowStatistics& p,
                                        float scale,
                                        float weight) {
  return {EntriesOfRow(q, scale),
          EntriesOfRow(p, scale),
          term.kind,
          term.beta,
          term.clip,
          scale,
          term.weight * weight,
          static_cast<float>(q.log_sum_exp - p.log_sum_exp)};
}

}  // namespace dapd
