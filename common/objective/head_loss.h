// The frozen LM head and the divergences in one, over chunks of tokens: no
// [tokens, V] tensor of a whole view exists, and the head gets no gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "torch/torch.h"

#include "common/objective/clipped_kl.h"

namespace dapd {

// What a teacher returned for the n scored tokens of a view: one of three.
struct TeacherScores {
  at::Tensor hidden;        // [n, hidden] behind the final norm, or
  at::Tensor logits;        // [n, V] float32, or
  at::Tensor top_ids;       // [n, k] int64 with
  at::Tensor top_logprobs;  // [n, k] float32, at the objective's temperature
};

// One teacher against the student of the call.
struct HeadTerm {
  const TeacherScores* teacher = nullptr;
  double clip = 0.05;
  double token_weight = 0.0;  // factor of each token's loss in the gradient
};

struct HeadLossOptions {
  double temperature = 1.1;
  // Tokens a chunk. It holds 1 + (number of terms) + a few [chunk, V] float32
  // tensors.
  int64_t chunk_tokens = 64;
};

struct HeadLoss {
  std::vector<DivergenceSums> sums;  // one a term
  // d(sum over terms and tokens of token_weight * loss) / d(student_hidden),
  // [n, hidden] in the head's dtype; undefined unless it was asked for.
  at::Tensor grad_hidden;
};

// `head` [V, hidden]; `student_hidden` [n, hidden], taken without its history.
HeadLoss ComputeHeadLoss(const at::Tensor& head,
                         const at::Tensor& student_hidden,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient);

}  // namespace dapd
