#include "common/objective/clipped_kl.h"

namespace dapd {
namespace {

// Sums of a chunk of components [n, m] of which `kept` are not clipped.
DivergenceSums SumComponents(const at::Tensor& components,
                             const at::Tensor& kept,
                             double clip) {
  DivergenceSums sums;
  sums.clipped =
      components.clamp_max(clip).sum(-1).sum(at::kDouble).item<double>();
  sums.unclipped = components.sum(-1).sum(at::kDouble).item<double>();
  sums.clipped_tokens = kept.all(-1).logical_not().sum().item<int64_t>();
  sums.tokens = components.size(0);
  return sums;
}

}  // namespace

DivergenceSums& DivergenceSums::operator+=(const DivergenceSums& other) {
  clipped += other.clipped;
  unclipped += other.unclipped;
  clipped_tokens += other.clipped_tokens;
  tokens += other.tokens;
  return *this;
}

DivergenceSums ClippedForwardKl(const at::Tensor& student_logprobs,
                                const at::Tensor& teacher_logprobs,
                                double clip,
                                double weight,
                                at::Tensor grad) {
  const at::Tensor q = teacher_logprobs.exp();
  const at::Tensor components = q * (teacher_logprobs - student_logprobs);
  const at::Tensor kept = components <= clip;
  if (grad.defined()) {
    const at::Tensor kept_q = q * kept;
    grad.addcmul_(
        student_logprobs.exp(), kept_q.sum(-1, /*keepdim=*/true), weight);
    grad.sub_(kept_q, weight);
  }
  return SumComponents(components, kept, clip);
}

DivergenceSums ClippedForwardKlTopK(const at::Tensor& student_logprobs,
                                    const at::Tensor& ids,
                                    const at::Tensor& teacher_logprobs,
                                    double clip,
                                    double weight,
                                    at::Tensor grad) {
  const bool has_tail = ids.size(1) < student_logprobs.size(1);
  const at::Tensor q = teacher_logprobs.exp();
  const at::Tensor log_p = student_logprobs.gather(1, ids);
  at::Tensor components = q * (teacher_logprobs - log_p);
  at::Tensor tail_p;
  at::Tensor tail_q;
  if (has_tail) {
    // Mass that rounding left negative or zero counts as a tiny positive one.
    constexpr double kTiny = 1e-10;
    tail_p = (1.0 - log_p.exp().sum(-1, true)).clamp_min(kTiny);
    tail_q = (1.0 - q.sum(-1, true)).clamp_min(kTiny);
    components =
        at::cat({components, tail_q * (tail_q.log() - tail_p.log())}, 1);
  }
  const at::Tensor kept = components <= clip;
  if (grad.defined()) {
    const at::Tensor all_q = has_tail ? at::cat({q, tail_q}, 1) : q;
    const at::Tensor kept_q = all_q * kept;
    const at::Tensor p = student_logprobs.exp();
    grad.addcmul_(p, kept_q.sum(-1, true), weight);
    at::Tensor pull;  // what each logit is pulled up by
    if (has_tail) {
      const at::Tensor kept_tail = kept_q.narrow(1, ids.size(1), 1);
      pull = p * (kept_tail / tail_p);
    } else {
      pull = at::zeros_like(p);
    }
    pull.scatter_(1, ids, kept_q.narrow(1, 0, ids.size(1)));
    grad.sub_(pull, weight);
  }
  return SumComponents(components, kept, clip);
}

}  // namespace dapd
