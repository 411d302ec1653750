// The component-clipped forward KL divergence, entry by entry: the arithmetic
// that the CPU's kernels (F a SIMD vector), the GPU's (F a float) and the tests
// (F a double) share. The formulas are those of common/objective/clipped_kl.h,
// written for raw logits z and scale s = 1 / T:
//
//   q_v      = exp(s (z_v - max z)) / sum_v exp(s (z_v - max z))
//   ratio_v  = log q_v - log p_v = s (zq_v - zp_v) - (lse_q - lse_p)
//   k_v      = q_v ratio_v,  clipped at c;  m_v = [k_v <= c]
//   dl/dzp_v = s (p_v sum_v(q_v m_v) - q_v m_v)
//
// The ratio is taken from the difference of the logits, which is exact where
// student and teacher nearly agree, and not from two rounded logarithms.
#pragma once

#include "common/kernels/host_device.h"

namespace dapd {

// Of softmax(s z) over one row.
struct RowStatistics {
  float max = 0.0F;          // of z
  float inverse_sum = 0.0F;  // 1 / sum_v exp(s (z_v - max))
  double log_sum_exp = 0.0;  // of s z
};

// What one vocabulary entry adds to a term. NaN is never clipped away.
template <typename F>
struct ClippedEntry {
  F component;  // k
  F clipped;    // min(k, c)
  F kept_q;     // q m
};

// A probability but for the factor 1 / sum; `exp` is the caller's.
template <typename F, typename Exp>
DAPD_HOST_DEVICE inline F ScaledExp(F z, F max, F scale, Exp exp) {
  return exp((z - max) * scale);
}

// `lse_difference`: lse_q - lse_p.
template <typename F>
DAPD_HOST_DEVICE inline F LogRatio(F zq, F zp, F scale, F lse_difference) {
  return (zq - zp) * scale - lse_difference;
}

template <typename F>
DAPD_HOST_DEVICE inline ClippedEntry<F> ClipEntry(F q, F log_ratio, F clip) {
  const F component = q * log_ratio;
  const auto over = component > clip;
  return {component, over ? clip : component, over ? F{} : q};
}

// dl/dzp where `mass` and `pull` are the sums over the student's terms of
// weight * sum_v(q m) and of weight * q_v m_v.
template <typename F>
DAPD_HOST_DEVICE inline F LogitGradient(F p, F mass, F pull, F scale) {
  return (p * mass - pull) * scale;
}

}  // namespace dapd
