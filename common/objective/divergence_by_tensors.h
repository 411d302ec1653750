// The component-clipped divergences and their gradients, tensor operation by
// tensor operation over a chunk of tokens, without autograd: the reference
// implementation of common/kernels/divergence_kernel.h, and the path of what
// the kernels do not take (top_k payloads, a GPU without kernels of our own).
//
// With a = z / T, p = softmax(a) the student's and q the target's distribution:
// the loss of a token is sum_v min(k_v, c), its gradient dl/da_v =
// p_v sum_u e_u - e_v, with k and e by divergence as in
// common/kernels/divergence_entry.h. Shapes: n tokens, V vocabulary.
#pragma once

#include <cstdint>

#include "common/objective/divergence_sums.h"
#include "common/tensor/aten.h"
#include "common/terms/divergence.h"

namespace dapd {

// A target's log-probabilities: all, or those of a few tokens each.
struct TargetLogprobs {
  at::Tensor logprobs;  // [n, V], or [n, k] normalised over the vocabulary
  at::Tensor ids;       // [n, k] int64; undefined: all
};

struct DivergenceRows {
  const at::Tensor& student_logprobs;  // log p [n, V]
  const TargetLogprobs& target;
  Divergence divergence;
  // Of a target of few tokens the whole vocabulary is these with a tail, and
  // the target's most probable ones are the most probable of these.
  Support support;
  at::Tensor token_weights;  // [n], factor of each token's loss; undefined: 1
};

// Adds weight * dl/da (a, not z: the caller divides by T once) to `grad` [n, V]
// if that is defined. Gives `clipped`, `unclipped` and `clipped_tokens` of
// DivergenceSums, [3] float64 where the rows are: nobody waits for them here.
at::Tensor DivergenceOnDevice(const DivergenceRows& rows,
                              double weight,
                              at::Tensor grad);
// Of such a tensor on the CPU, over `tokens` tokens.
DivergenceSums SumsOf(const at::Tensor& host, int64_t tokens);

// Both in one.
DivergenceSums DivergenceByTensors(const DivergenceRows& rows,
                                   double weight,
                                   at::Tensor grad);

}  // namespace dapd
