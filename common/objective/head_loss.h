// The frozen LM head and the divergences in one, over chunks of tokens: no
// [tokens, V] tensor of a whole view exists, and the head gets no gradient.
//
// A call takes all students that score the same tokens, with all their targets.
// Of each chunk every source's logits (students, and each teacher once, however
// many terms share it) come out of one product with the head; targets that are
// made of several teachers are made of these; one pass per token turns them
// into sums and, in place, into the gradient of the students' logits; one
// product with the head turns that into the gradient of their hidden states.
// Equations and passes: common/kernels/divergence_kernel.h.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/objective/divergence_sums.h"
#include "common/objective/head_workspace.h"
#include "common/tensor/aten.h"
#include "common/terms/term.h"

namespace dapd {

// The LM head: final logits are weight hidden, capped as in AttentionRecipe
// (common/model/spec/layer_recipe.h).
struct LmHead {
  LmHead(at::Tensor head_weight, double cap = 0.0)
      : weight(std::move(head_weight)), softcap(cap) {}

  at::Tensor weight;  // [V, hidden] float32 or bfloat16
  double softcap;     // 0: no cap
};

// What a teacher returned for the n scored tokens of a view: one of three.
struct TeacherScores {
  at::Tensor hidden;        // [n, hidden] after the final norm, or
  at::Tensor logits;        // [n, V] float32, capped, or
  at::Tensor top_ids;       // [n, k] int64 with
  at::Tensor top_logprobs;  // [n, k] float32, at the objective's temperature
};

struct HeadStudent {
  at::Tensor hidden;  // [n, hidden] in the head's dtype, taken without history
  at::Tensor ids;     // [n] int64, the scored tokens: asks for token_logprobs
  // Where its gradient is written, as `hidden`; undefined: a new tensor. May be
  // `hidden` itself, each of whose rows is read before it is written.
  at::Tensor gradient;

  at::Tensor MakeGradient() const {
    return gradient.defined() ? gradient : at::empty_like(hidden);
  }
};

// One target against one student of the call. Teachers that are the same tensor
// are computed once.
struct HeadTerm {
  // How its passes make the target; the passes in the order of PassesOf.
  const Target* target = nullptr;
  std::vector<const TeacherScores*> passes;
  // The whole vocabulary of a top_k payload is its k tokens with a tail.
  Divergence divergence;
  Support support;
  size_t student = 0;         // index into the call's students
  double token_weight = 0.0;  // factor of each token's loss in the gradient
  int64_t skip_tokens = 0;    // first tokens that are left out
  // [n] each, undefined: 1 for every token, and no route. A factor of the
  // token's loss in sums and gradient; which pass a routed target takes (0, 1).
  at::Tensor token_weights;  // float32
  at::Tensor route;          // uint8
  // [n] int64, the scored tokens: of a one-hot target.
  at::Tensor ids;
};

struct HeadLossOptions {
  double temperature = 1.1;
  // Of a chunk's logits, at most; 0: 336 MiB, which are 115 tokens of five
  // sources at V = 151,936, and on a GPU as many as a call has room for that
  // takes 1 GB in all (chunk_tokens.h). There a chunk's tokens are a multiple
  // of what the kernels and the matrix units take at a time: 256 of five
  // sources, 778 MB.
  int64_t chunk_bytes = 0;
  // Kept between calls by the caller; null: memory of the call's own. On a GPU
  // it is given back where tensor operations compute the loss.
  HeadWorkspace* workspace = nullptr;
};

struct HeadLoss {
  std::vector<DivergenceSums> sums;  // one per term
  // d(sum over terms and tokens of token_weight * loss) / d(student's hidden),
  // [n, hidden] in the head's dtype, one per student; empty unless asked for.
  std::vector<at::Tensor> grad_hidden;
  // [n] float32 on the CPU, one per student: of its ids at temperature 1;
  // undefined where it has none.
  std::vector<at::Tensor> token_logprobs;
};

// On the CPU neither the number of threads nor chunk_bytes changes a bit of the
// result. top_k payloads, capped logits and a GPU without own kernels take the
// path of ComputeHeadLossByTensors. A GPU is waited for once, at the end.
HeadLoss ComputeHeadLoss(const LmHead& head,
                         std::span<const HeadStudent> students,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient);

// The same, tensor operation by tensor operation: the reference implementation.
// Its chunks hold one student and one target.
HeadLoss ComputeHeadLossByTensors(const LmHead& head,
                                  std::span<const HeadStudent> students,
                                  std::span<const HeadTerm> terms,
                                  const HeadLossOptions& options,
                                  bool with_gradient);

// log p [n] float32 of each token of `ids` [n] under what a teacher returned,
// at `temperature`. A top_k payload has no others than its k: a token that is
// not among them is an error (c10::Error). On a GPU logits are computed in
// `workspace`, null: in memory of the call's own.
at::Tensor TokenLogprobsOf(const LmHead& head,
                           const TeacherScores& scores,
                           const at::Tensor& ids,
                           double temperature,
                           HeadWorkspace* workspace = nullptr);

}  // namespace dapd
