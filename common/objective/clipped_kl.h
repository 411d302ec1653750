// The component-clipped forward KL divergence of the paper and its gradient,
// row by row over a chunk of tokens, without autograd.
//
// With a = z / T, p = softmax(a) the student's, q = softmax(z_teacher / T) the
// teacher's distribution, c the clip and m_v = [q_v (log q_v - log p_v) <= c]
// (a tie passes gradient):
//
//   loss    = sum_v min(q_v (log q_v - log p_v), c)
//   dloss/dz = (1 / T) (p sum_v(q_v m_v) - q m)
//
// Everything in float32. Shapes: n tokens, V vocabulary.
#pragma once

#include <cstdint>

#include "common/tensor/aten.h"

namespace dapd {

// Sums over the rows of one call.
struct DivergenceSums {
  double clipped = 0.0;        // the loss
  double unclipped = 0.0;      // the true KL divergence
  int64_t clipped_tokens = 0;  // rows with at least one entry above the clip
  int64_t tokens = 0;

  DivergenceSums& operator+=(const DivergenceSums& other);
};

// `student_logprobs` log p [n, V]; `teacher_logprobs` log q [n, V]. Adds
// weight * dloss/da (a, not z: the caller divides by T once) to `grad` [n, V]
// if that is defined.
DivergenceSums ClippedForwardKl(const at::Tensor& student_logprobs,
                                const at::Tensor& teacher_logprobs,
                                double clip,
                                double weight,
                                at::Tensor grad);

// As above where the teacher gives only its k most probable tokens, `ids`
// [n, k] int64 with `teacher_logprobs` [n, k] normalised over the whole
// vocabulary. The rest of the vocabulary is one more component (the mass that
// is left), so k = V gives the full value.
DivergenceSums ClippedForwardKlTopK(const at::Tensor& student_logprobs,
                                    const at::Tensor& ids,
                                    const at::Tensor& teacher_logprobs,
                                    double clip,
                                    double weight,
                                    at::Tensor grad);

}  // namespace dapd
