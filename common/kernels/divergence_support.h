// A term over a support: the divergence between two distributions over a few
// tokens of the vocabulary, and, with a tail, the rest of it as one more entry.
// A token at a time in double precision, for CPU and GPU
// (terms/divergence.h, Support; SDPO, Huebotter et al., arXiv 2601.20802).
//
// With P_b and Q_b the entries' probabilities and e_b the pull of EntryOf, a
// student's logit j gets s (P_j E - e_j), E = sum_b e_b, where j is of the
// support. What is outside shares the tail's pull by its probabilities, p_j (E
// - e_tail / P_tail), or, without a tail, gets nothing.
#pragma once

#include "common/kernels/divergence_entry.h"

namespace dapd {

// Both sides' log of the support's probability, and of the rest.
struct SupportShape {
  double norm_q = 0.0;  // what an entry's log q is reduced by
  double norm_p = 0.0;
  double log_tail_q = 0.0;
  double log_tail_p = 0.0;
  // The support has all of p: its rest is a constant and pulls at nothing.
  bool tail_is_constant = false;
};

// `math` has Exp, Log and Expm1 of a double. `log_q`, `log_p`: log of the
// support's probability, which itself may be less than a double holds.
template <typename Math>
DAPD_HOST_DEVICE inline SupportShape ShapeOf(double log_q,
                                             double log_p,
                                             bool has_tail,
                                             const Math& math) {
  constexpr double kLeastTail = -1e-7;  // log of the most that a support has
  if (!has_tail) return {log_q, log_p};
  const auto tail = [&](double log_sum) {
    return math.Log(-math.Expm1(log_sum < kLeastTail ? log_sum : kLeastTail));
  };
  return {0.0, 0.0, tail(log_q), tail(log_p), !(log_p < kLeastTail)};
}

// An entry's probabilities are e^log_q and e^log_p.
template <typename Math>
DAPD_HOST_DEVICE inline ClippedEntry<double> SupportEntry(DivergenceKind kind,
                                                          double log_q,
                                                          double log_p,
                                                          double beta,
                                                          double clip,
                                                          const Math& math) {
  return WithKind(kind, [&]<DivergenceKind kKind>() {
    return EntryOf<kKind>(
        math.Exp(log_q), math.Exp(log_p), log_q - log_p, beta, clip, math);
  });
}

// Of the gradient, before scale and weight.
struct SupportPull {
  double total = 0.0;    // E
  double outside = 0.0;  // factor of p_j for a token outside of the support
};

DAPD_HOST_DEVICE inline SupportPull PullOf(double pull_of_support,
                                           double pull_of_tail,
                                           double tail_p,
                                           bool has_tail) {
  const double total = pull_of_support + pull_of_tail;
  return {total, has_tail ? total - pull_of_tail / tail_p : 0.0};
}

}  // namespace dapd
