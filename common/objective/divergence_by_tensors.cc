#include "common/objective/divergence_by_tensors.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dapd {
namespace {

// Entries that the divergence is summed over, [n, m] each.
struct Entries {
  at::Tensor log_p;
  at::Tensor log_q;
  at::Tensor ids;            // [n, k]; undefined: the whole vocabulary
  bool has_tail = false;     // the last entry is the rest of the vocabulary
  at::Tensor tail_is_fixed;  // [n, 1]: the rest of p is a constant
};

// Returns log(1 - sum) for the rest of the vocabulary, whose probability counts
// as at least 1e-7.
constexpr double kLeastTail = -1e-7;
at::Tensor LogTail(const at::Tensor& log_sum) {
  return at::log(-at::expm1(log_sum.clamp_max(kLeastTail)));
}

// Returns the target over the entries that the divergence is summed over. These
// are its own entries if they are the whole vocabulary.
TargetLogprobs OnSupport(const DivergenceRows& rows) {
  const auto& [logprobs, ids] = rows.target;
  const int64_t k = std::min(rows.support.k, logprobs.size(1));
  if (rows.support.kind == SupportKind::kTeacherTopK) {
    const auto [top, places] = logprobs.topk(k, -1);
    return {top, ids.defined() ? ids.gather(1, places) : places};
  }
  if (ids.defined() || rows.support.kind == SupportKind::kFull) {
    return rows.target;
  }
  const at::Tensor top = std::get<1>(rows.student_logprobs.topk(k, -1));
  return {logprobs.gather(1, top), top};
}

Entries EntriesOf(const DivergenceRows& rows) {
  const auto [log_q, ids] = OnSupport(rows);
  if (!ids.defined()) return {rows.student_logprobs, log_q};
  Entries entries;
  entries.ids = ids;
  entries.log_p = rows.student_logprobs.gather(1, ids);
  entries.log_q = log_q;
  if (ids.size(1) == rows.student_logprobs.size(1)) return entries;
  const at::Tensor sum_p = entries.log_p.logsumexp(-1, /*keepdim=*/true);
  const at::Tensor sum_q = entries.log_q.logsumexp(-1, /*keepdim=*/true);
  entries.has_tail =
      rows.support.kind == SupportKind::kFull || rows.support.tail;
  if (entries.has_tail) {
    entries.log_p = at::cat({entries.log_p, LogTail(sum_p)}, 1);
    entries.log_q = at::cat({entries.log_q, LogTail(sum_q)}, 1);
    entries.tail_is_fixed = sum_p >= kLeastTail;
  } else {
    entries.log_p = entries.log_p - sum_p;
    entries.log_q = entries.log_q - sum_q;
  }
  return entries;
}

struct Components {
  at::Tensor value;  // k
  at::Tensor pull;   // e where nothing is clipped
};

// Every divergence has a case here, in the kernels' ComponentOf and WithKind,
// and in DivergenceKind.
Components ComponentsOf(const Entries& entries, const Divergence& divergence) {
  const at::Tensor p = entries.log_p.exp();
  const at::Tensor q = entries.log_q.exp();
  const at::Tensor log_ratio = entries.log_q - entries.log_p;
  switch (divergence.kind) {
    case DivergenceKind::kReverseKl:
      return {p * -log_ratio, p * (log_ratio - 1.0)};
    case DivergenceKind::kJensenShannon: {
      const double beta = divergence.beta;
      const at::Tensor log_m = at::logaddexp(entries.log_q + std::log(beta),
                                             entries.log_p + std::log1p(-beta));
      const at::Tensor of_student = (1.0 - beta) * p * (entries.log_p - log_m);
      return {beta * q * (entries.log_q - log_m) + of_student, -of_student};
    }
    case DivergenceKind::kForwardKl:
      break;
  }
  return {q * log_ratio, q};
}

// Returns dl/da [n, V] for `pull` [n, m], in which clipped entries are zero.
at::Tensor GradientOf(const DivergenceRows& rows,
                      const Entries& entries,
                      const at::Tensor& pull) {
  const at::Tensor p = rows.student_logprobs.exp();
  if (!entries.ids.defined()) return p * pull.sum(-1, true) - pull;
  const int64_t k = entries.ids.size(1);
  const at::Tensor of_support = pull.narrow(1, 0, k);
  if (!entries.has_tail) {
    const at::Tensor inside =
        entries.log_p.exp() * of_support.sum(-1, true) - of_support;
    return at::zeros_like(p).scatter(1, entries.ids, inside);
  }
  const at::Tensor of_tail =
      pull.narrow(1, k, 1).masked_fill(entries.tail_is_fixed, 0.0);
  const at::Tensor total = of_support.sum(-1, true) + of_tail;
  // Entries outside share the pull of the tail in proportion to their
  // probabilities.
  const at::Tensor outside =
      p * (total - of_tail / entries.log_p.narrow(1, k, 1).exp());
  const at::Tensor inside = p.gather(1, entries.ids) * total - of_support;
  return outside.scatter(1, entries.ids, inside);
}

}  // namespace

at::Tensor DivergenceOnDevice(const DivergenceRows& rows,
                              double weight,
                              at::Tensor grad) {
  const Entries entries = EntriesOf(rows);
  const Components components = ComponentsOf(entries, rows.divergence);
  const double clip = rows.divergence.clip;
  const at::Tensor kept = components.value <= clip;
  const auto weighted = [&](const at::Tensor& by_token) {
    return rows.token_weights.defined() ? by_token * rows.token_weights
                                        : by_token;
  };
  const auto sum = [&](const at::Tensor& values) {
    return weighted(values.sum(-1)).sum(at::kDouble);
  };
  if (grad.defined()) {
    at::Tensor gradient =
        GradientOf(rows, entries, components.pull * kept) * weight;
    if (rows.token_weights.defined()) {
      gradient = gradient * rows.token_weights.unsqueeze(1);
    }
    grad.add_(gradient);
  }
  at::Tensor any_clipped = kept.all(-1).logical_not();
  if (rows.token_weights.defined()) {
    any_clipped = any_clipped.logical_and(rows.token_weights != 0.0);
  }
  return at::stack({sum(components.value.clamp_max(clip)),
                    sum(components.value),
                    any_clipped.sum().to(at::kDouble)});
}

DivergenceSums SumsOf(const at::Tensor& host, int64_t tokens) {
  const auto* sums = host.const_data_ptr<double>();
  return {.clipped = sums[0],
          .unclipped = sums[1],
          .clipped_tokens = static_cast<int64_t>(sums[2]),
          .tokens = tokens};
}

DivergenceSums DivergenceByTensors(const DivergenceRows& rows,
                                   double weight,
                                   at::Tensor grad) {
  return SumsOf(DivergenceOnDevice(rows, weight, std::move(grad)).cpu(),
                rows.student_logprobs.size(0));
}

}  // namespace dapd
