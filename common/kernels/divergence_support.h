// A term over a support: the divergence between two distributions over a few
// tokens of the vocabulary; with a tail, the rest of the vocabulary is one more
// entry. It computes a token at a time in double precision, for CPU and GPU
// (terms/divergence.h, Support; SDPO, Huebotter et al., arXiv 2601.20802).
//
// P_b and Q_b are the entries' probabilities, e_b is the pull of EntryOf, and E
// = sum_b e_b. A student's logit j in the support gets s (P_j E - e_j). A logit
// outside the support shares the tail's pull by its probability, p_j (E -
// e_tail / P_tail), or gets nothing without a tail.
#pragma once

#include "common/kernels/divergence_entry.h"

namespace dapd {

// The log of the support's probability and of the rest's, on both sides.
struct SupportShape {
  double norm_q = 0.0;  // subtracted from an entry's log q
  double norm_p = 0.0;
  double log_tail_q = 0.0;
  double log_tail_p = 0.0;
  // The support has all of p: the rest is a constant and pulls at nothing.
  bool tail_is_constant = false;
};

// `math` has Exp, Log and Expm1 of a double. `log_q` and `log_p` are the logs
// of the support's probability, because the probability itself may be too small
// for a double.
template <typename Math>
DAPD_HOST_DEVICE inline SupportShape ShapeOf(double log_q,
                                             double log_p,
                                             bool has_tail,
                                             const Math& math) {
  constexpr double kLeastTail = -1e-7;  // log of the largest probability with a
                                        // tail
  if (!has_tail) return {log_q, log_p};
  const auto tail = [&](double log_sum) {
    return math.Log(-math.Expm1(log_sum < kLeastTail ? log_sum : kLeastTail));
  };
  return {0.0, 0.0, tail(log_q), tail(log_p), !(log_p < kLeastTail)};
}

// The entry's probabilities are e^log_q and e^log_p.
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

// The gradient of a term before scale and weight.
struct SupportPull {
  double total = 0.0;    // E
  double outside = 0.0;  // factor of p_j for a token outside the support
};

DAPD_HOST_DEVICE inline SupportPull PullOf(double pull_of_support,
                                           double pull_of_tail,
                                           double tail_p,
                                           bool has_tail) {
  const double total = pull_of_support + pull_of_tail;
  return {total, has_tail ? total - pull_of_tail / tail_p : 0.0};
}

}  // namespace dapd
