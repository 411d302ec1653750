// The component-clipped divergences, entry by entry: the arithmetic that the
// CPU kernels (F a SIMD vector), the GPU kernels (F a float) and the tests (F a
// double) share. Written for raw logits z and scale s = 1 / T:
//
//   q_v      = exp(s (zq_v - max zq)) / sum_v exp(s (zq_v - max zq))
//   r_v      = log q_v - log p_v = s (zq_v - zp_v) - (lse_q - lse_p)
//
// An entry adds its component k_v, clipped at c: min(k_v, c). The gradient of
// every divergence at the student's logits has the same form,
//
//   dl/dzp_v = s (p_v sum_u e_u - e_v),   e_v = [k_v <= c] times
//
//   divergence     component k_v                               e_v
//   forward KL     q r                                         q
//   reverse KL     -p r                                        -p (1 - r)
//   Jensen-Shannon beta q log(q/m) + (1 - beta) p log(p/m)     -p (1 - beta)
//                  with m = beta q + (1 - beta) p              log(p/m)
//
// so a new divergence is a case of ComponentOf and of WithKind.
// component_clip.h clips.
//
// The ratio comes from the difference of the logits, which is exact where
// student and target nearly agree, and not from two rounded logarithms.
#pragma once

#include "common/kernels/component_clip.h"
#include "common/kernels/host_device.h"
#include "common/terms/divergence.h"

namespace dapd {

// Statistics of softmax(s z) over one row.
struct RowStatistics {
  float max = 0.0F;          // of z
  float inverse_sum = 0.0F;  // 1 / sum_v exp(s (z_v - max))
  double log_sum_exp = 0.0;  // log sum_v exp(s z_v)
};

// Returns a probability without the factor 1 / sum. The caller provides `exp`.
template <typename F, typename Exp>
DAPD_HOST_DEVICE inline F ScaledExp(F z, F max, F scale, Exp exp) {
  return exp((z - max) * scale);
}

// `lse_difference` is lse_q - lse_p.
template <typename F>
DAPD_HOST_DEVICE inline F LogRatio(F zq, F zp, F scale, F lse_difference) {
  return (zq - zp) * scale - lse_difference;
}

// An entry before the clip: k, and e as if the clip did not apply.
template <typename F>
struct Component {
  F component;
  F pull;
};

// `log_ratio` is log q - log p. `math` has Exp and Log of F.
template <DivergenceKind kKind, typename F, typename Math>
DAPD_HOST_DEVICE inline Component<F> ComponentOf(
    F q, F p, F log_ratio, F beta, const Math& math) {
  if constexpr (kKind == DivergenceKind::kForwardKl) {
    return {q * log_ratio, q};
  } else if constexpr (kKind == DivergenceKind::kReverseKl) {
    return {-(p * log_ratio), p * log_ratio - p};
  } else {
    static_assert(kKind == DivergenceKind::kJensenShannon);
    // m is divided by the larger of q and p, so that nothing overflows.
    const auto q_is_larger = log_ratio > F{};
    const F smaller = math.Exp(q_is_larger ? -log_ratio : log_ratio);
    const F of_p = 1.0F - beta;
    const F log_m =
        math.Log(q_is_larger ? beta + of_p * smaller : beta * smaller + of_p);
    const F log_q_m = q_is_larger ? -log_m : log_ratio - log_m;
    const F log_p_m = q_is_larger ? -log_m - log_ratio : -log_m;
    const F of_student = of_p * (p * log_p_m);
    return {beta * (q * log_q_m) + of_student, -of_student};
  }
}

// Returns the entry after the clip.
template <DivergenceKind kKind, typename F, typename Math>
DAPD_HOST_DEVICE inline ClippedEntry<F> EntryOf(
    F q, F p, F log_ratio, F beta, F clip, const Math& math) {
  const auto entry = ComponentOf<kKind>(q, p, log_ratio, beta, math);
  return ClipComponent(entry.component, entry.pull, clip);
}

// Calls visit.operator()<kind>(). This is the only list of the kinds.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <typename Visit>
DAPD_HOST_DEVICE inline auto WithKind(DivergenceKind kind, const Visit& visit) {
  switch (kind) {
    case DivergenceKind::kReverseKl:
      return visit.template operator()<DivergenceKind::kReverseKl>();
    case DivergenceKind::kJensenShannon:
      return visit.template operator()<DivergenceKind::kJensenShannon>();
    case DivergenceKind::kForwardKl:
      break;
  }
  return visit.template operator()<DivergenceKind::kForwardKl>();
}

// Returns dl/dzp. `mass` and `pull` are the sums over the student's terms of
// weight * sum_u e_u and of weight * e_v.
template <typename F>
DAPD_HOST_DEVICE inline F LogitGradient(F p, F mass, F pull, F scale) {
  return (p * mass - pull) * scale;
}

}  // namespace dapd
