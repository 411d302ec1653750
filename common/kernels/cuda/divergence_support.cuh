// Terms over a support, by a block that takes a token (divergence_kernel.cu):
// their sums, and what their logits get. divergence_support.h has the
// mathematics.
//
// Block is what that block knows: kSize threads; `args`, `token`, and `rows` by
// source; `support_pull`, one number an entry of all supports; Sum(value) over
// its threads, in every one of them; LogProbabilityOf(source, id); and
// IsOf(term, student), whether the token counts in a term of that student.
#pragma once

#include <cmath>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_kernel.h"
#include "common/kernels/divergence_support.h"

namespace dapd {

struct DoubleMath {
  __device__ double Exp(double x) const { return exp(x); }
  __device__ double Log(double x) const { return log(x); }
  __device__ double Expm1(double x) const { return expm1(x); }
};

// The sums over a support, and in `pull` what each of its logits gets on top
// of what all logits get.
template <typename Block>
__device__ DivergenceTokenSums SumsOfSupport(const Block& block,
                                             const DivergenceTerm& term,
                                             float* pull) {
  const DoubleMath math;
  const int64_t* ids = term.support + block.token * term.support_size;
  double part_q = 0.0;
  double part_p = 0.0;
  for (int i = threadIdx.x; i < term.support_size; i += Block::kSize) {
    part_q += math.Exp(block.LogProbabilityOf(term.target, ids[i]));
    part_p += math.Exp(block.LogProbabilityOf(term.student, ids[i]));
  }
  const double sum_q = block.Sum(part_q);
  const double sum_p = block.Sum(part_p);
  const SupportShape shape = ShapeOf(sum_q, sum_p, term.has_tail, math);
  const auto entry_at = [&](int i) {
    return SupportEntry(
        term.kind,
        block.LogProbabilityOf(term.target, ids[i]) - shape.norm_q,
        block.LogProbabilityOf(term.student, ids[i]) - shape.norm_p,
        term.beta,
        term.clip,
        math);
  };
  ClippedEntry<double> part = {0.0, 0.0, 0.0};
  bool any = false;
  for (int i = threadIdx.x; i < term.support_size; i += Block::kSize) {
    const ClippedEntry<double> entry = entry_at(i);
    part.component += entry.component;
    part.clipped += entry.clipped;
    part.pull += entry.pull;
    any |= entry.component > entry.clipped;
  }
  ClippedEntry<double> tail = {0.0, 0.0, 0.0};
  if (term.has_tail) {
    tail = SupportEntry(term.kind,
                        shape.log_tail_q,
                        shape.log_tail_p,
                        term.beta,
                        term.clip,
                        math);
    any |= tail.component > tail.clipped;
  }
  DivergenceTokenSums sums;
  sums.clipped = block.Sum(part.clipped) + tail.clipped;
  sums.unclipped = block.Sum(part.component) + tail.component;
  sums.any_clipped = __syncthreads_or(any) != 0;
  const SupportPull whole = PullOf(block.Sum(part.pull),
                                   shape.tail_is_constant ? 0.0 : tail.pull,
                                   math.Exp(shape.log_tail_p),
                                   term.has_tail);
  sums.mass = whole.outside;
  for (int i = threadIdx.x; i < term.support_size; i += Block::kSize) {
    const double log_p = block.LogProbabilityOf(term.student, ids[i]);
    pull[i] =
        static_cast<float>(math.Exp(log_p - shape.norm_p) * whole.total -
                           entry_at(i).pull - math.Exp(log_p) * whole.outside);
  }
  return sums;
}

// What SumsOfSupport left for each logit of the student's supports, one term
// after the other: an id may be in several.
template <typename T, typename Block>
__device__ void AddSupports(const Block& block, int student) {
  T* out = reinterpret_cast<T*>(block.rows[student]);
  const float* next = block.support_pull;
  for (int k = 0; k < block.args.num_terms; ++k) {
    const DivergenceTerm& term = block.args.terms[k];
    const float* const pull = next;
    next += term.support_size;
    if (!block.IsOf(term, student) || term.support == nullptr) continue;
    const float factor =
        block.args.scale * term.weight * TokenWeight(term, block.token);
    const int64_t* ids = term.support + block.token * term.support_size;
    for (int i = threadIdx.x; i < term.support_size; i += Block::kSize) {
      out[ids[i]] = FromFloat<T>(ToFloat(out[ids[i]]) + factor * pull[i]);
    }
    __syncthreads();
  }
}

}  // namespace dapd
