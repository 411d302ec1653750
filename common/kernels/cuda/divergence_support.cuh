// Terms over a support in a block that computes one token
// (divergence_kernel.cu): their sums, and their part of the gradient.
// divergence_support.h has the mathematics.
//
// Block is a class with kSize threads; `args`, `token`, and `rows` by source;
// `support_pull`, one number per entry of all supports; Sum(value) and
// Max(value) over its threads, in every one of them; LogProbabilityOf(source,
// id); and IsOf(term, student), which returns whether the token counts in a
// term of that student.
#pragma once

#include <cfloat>
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

// Returns the log of the sum of the probabilities of `count` entries.
template <typename Block>
__device__ double LogProbabilityOfAll(const Block& block,
                                      int source,
                                      const int64_t* ids,
                                      int count) {
  const DoubleMath math;
  float largest = -FLT_MAX;
  for (int i = threadIdx.x; i < count; i += Block::kSize) {
    largest = fmaxf(largest,
                    static_cast<float>(block.LogProbabilityOf(source, ids[i])));
  }
  largest = block.Max(largest);
  double part = 0.0;
  for (int i = threadIdx.x; i < count; i += Block::kSize) {
    part += math.Exp(block.LogProbabilityOf(source, ids[i]) - largest);
  }
  return largest + math.Log(block.Sum(part));
}

// Returns the sums over a support. Writes to `pull` what each logit of the
// support gets in addition to what all logits get.
template <typename Block>
__device__ DivergenceTokenSums SumsOfSupport(const Block& block,
                                             const DivergenceTerm& term,
                                             float* pull) {
  const DoubleMath math;
  const int64_t* ids = term.support + block.token * term.support_size;
  const SupportShape shape =
      ShapeOf(LogProbabilityOfAll(block, term.target, ids, term.support_size),
              LogProbabilityOfAll(block, term.student, ids, term.support_size),
              term.has_tail,
              math);
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

// Adds what SumsOfSupport stored for each logit of the student's supports, one
// term after the other, because an id may be in several supports.
template <typename T, typename Block>
__device__ void AddSupports(const Block& block, int student) {
  T* out = reinterpret_cast<T*>(block.rows[student].first);
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
