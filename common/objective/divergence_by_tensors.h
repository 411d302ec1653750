// Computes the component-clipped divergences and their gradients, tensor
// operation by tensor operation over a chunk of tokens, without autograd. It is
// the reference implementation of common/kernels/divergence_kernel.h, and
// computes whatever the kernels do not take (top_k payloads, a GPU without
// kernels of our own).
//
// With a = z / T, p = softmax(a) the student's distribution and q the target's
// distribution, the loss of a token is sum_v min(k_v, c) and its gradient is
// dl/da_v = p_v sum_u e_u - e_v, with k and e by divergence as in
// common/kernels/divergence_entry.h. Shapes: n tokens, V vocabulary.
#pragma once

#include <cstdint>

#include "common/objective/divergence_sums.h"
#include "common/tensor/aten.h"
#include "common/terms/divergence.h"

namespace dapd {

// Holds the log-probabilities of a target for every entry of the vocabulary, or
// for k entries per token.
struct TargetLogprobs {
  at::Tensor logprobs;  // [n, V], or [n, k] normalised over the vocabulary
  at::Tensor ids;       // [n, k] int64; undefined: every entry
};

struct DivergenceRows {
  const at::Tensor& student_logprobs;  // log p [n, V]
  const TargetLogprobs& target;
  Divergence divergence;
  // If the target has k entries per token, the whole vocabulary means these
  // entries and a tail, and the most probable entries are chosen among these.
  Support support;
  at::Tensor token_weights;  // [n], factor of each token's loss; undefined: 1
};

// Adds weight * dl/da (a, not z: the caller divides by T once) to `grad` [n, V]
// if `grad` is defined. Returns `clipped`, `unclipped` and `clipped_tokens` of
// DivergenceSums as one tensor, [3] float64 on the device of the rows. The host
// does not wait.
at::Tensor DivergenceOnDevice(const DivergenceRows& rows,
                              double weight,
                              at::Tensor grad);
// Reads the result of DivergenceOnDevice, copied to the CPU, as sums over
// `tokens` tokens.
DivergenceSums SumsOf(const at::Tensor& host, int64_t tokens);

// Calls DivergenceOnDevice and SumsOf; waits for the device.
DivergenceSums DivergenceByTensors(const DivergenceRows& rows,
                                   double weight,
                                   at::Tensor grad);

}  // namespace dapd
