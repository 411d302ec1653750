// Computes the frozen LM head and the divergences together, over chunks of
// tokens: no [tokens, V] tensor of a whole view exists, and the head gets no
// gradient.
//
// A call takes all students that score the same tokens, with all their targets.
// For each chunk one product with each head gives the logits of its sources:
// the students, and each teacher once, however many terms share it. Targets
// that are made of several teachers are computed from these logits. One pass
// per token turns the logits into sums and, in place, into the gradient of the
// students' logits. One more product with the head turns that gradient into the
// gradient of the hidden states. Equations and passes:
// common/kernels/divergence_kernel.h.
//
// A teacher that is another model brings its own head, whose hidden states may
// have another width. All heads of a call are cut to their first V_c rows
// before the softmax, so that p and q are distributions over the same tokens.
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

// The result of a teacher for the n scored tokens of a view, in one of three
// forms.
struct TeacherScores {
  at::Tensor hidden;        // [n, hidden] after the final norm, or
  at::Tensor logits;        // [n, V] float32, capped, or
  at::Tensor top_ids;       // [n, k] int64 with
  at::Tensor top_logprobs;  // [n, k] float32, at the objective's temperature
  // The head of the model that made the scores, on the device and with the
  // dtype of `hidden`; V and `hidden` have its sizes. The caller keeps it alive
  // during the call. Null: the head of the call.
  const LmHead* head = nullptr;
};

struct HeadStudent {
  at::Tensor hidden;  // [n, hidden] in the head's dtype, taken without history
  at::Tensor ids;  // [n] int64, the scored tokens; undefined: no token_logprobs
  // The gradient is written here, with the shape and dtype of `hidden`;
  // undefined: into a new tensor. It may be `hidden` itself: each row is read
  // before it is written.
  at::Tensor gradient;

  at::Tensor MakeGradient() const {
    return gradient.defined() ? gradient : at::empty_like(hidden);
  }
};

// One target against one student of the call. Teachers with the same tensor are
// computed once.
struct HeadTerm {
  // The rule that makes the target of its passes, and the passes in the order
  // of PassesOf.
  const Target* target = nullptr;
  std::vector<const TeacherScores*> passes;
  // For a top_k payload the whole vocabulary means its k tokens and a tail.
  Divergence divergence;
  Support support;
  size_t student = 0;         // index into the call's students
  double token_weight = 0.0;  // factor of each token's loss in the gradient
  int64_t skip_tokens = 0;    // first tokens that are left out
  // [n] each. `token_weights` is a factor of the token's loss in sums and
  // gradient; undefined: 1. `route` is the index (0 or 1) of the pass that a
  // routed target takes; undefined: no route.
  at::Tensor token_weights;  // float32
  at::Tensor route;          // uint8
  // [n] int64, the scored tokens, for a one-hot target.
  at::Tensor ids;
};

struct HeadLossOptions {
  double temperature = 1.1;
  // The most bytes of a chunk's logits. 0 means 336 MiB on the CPU (115 tokens
  // of five sources at V = 151,936); on a GPU it means as many as fit into a
  // call that takes 1 GB (chunk_tokens.h). On a GPU the tokens of a chunk are a
  // multiple of the tokens that the kernels and the matrix units take at a
  // time: 256 tokens of five sources, 778 MB.
  int64_t chunk_bytes = 0;
  // V_c, the number of tokens over which all distributions are taken: the first
  // V_c rows of every head and columns of given logits count. 0 means the
  // smallest number of rows and columns in the call. A run whose teachers have
  // several sizes gives it, so that all calls agree. It must not exceed a head
  // or given logits. The scored tokens must be below it. A top_k payload is
  // normalised over its model's whole vocabulary, so it is refused unless that
  // has V_c tokens.
  int64_t vocabulary = 0;
  // Rounds logits to bfloat16, as a model in LibTorch does whose head is
  // bfloat16; sums and probabilities stay float32. It applies to the products
  // with bfloat16 heads if the students' head is one of them. On a GPU these
  // logits take half the memory and half the time to read.
  bool bfloat16_logits = false;
  // Warps of a block of the loss's cluster kernel on a GPU
  // (kernels/cuda/divergence_plan.h).
  int cluster_warps = 16;
  // The caller keeps it between calls; null: the call allocates its own memory.
  // On a GPU it is released where tensor operations compute the loss.
  HeadWorkspace* workspace = nullptr;
};

struct HeadLoss {
  std::vector<DivergenceSums> sums;  // one per term
  // d(sum over terms and tokens of token_weight * loss) / d(hidden of the
  // student), [n, hidden] in the head's dtype, one per student; empty unless
  // asked for.
  std::vector<at::Tensor> grad_hidden;
  // [n] float32 on the CPU, one per student: log-probabilities of its ids among
  // the V_c tokens at temperature 1; undefined for a student without ids. The
  // kernels take them from the logits of the loss, tensor operations from
  // float32 logits.
  std::vector<at::Tensor> token_logprobs;
};

// On the CPU neither the number of threads nor chunk_bytes changes a bit of the
// result. ComputeHeadLossByTensors computes top_k payloads, calls in which a
// head caps its logits, and everything on a GPU without kernels of our own. The
// host waits for a GPU once, at the end. Throws c10::Error if the sizes of the
// heads, the scores and options.vocabulary do not fit together.
HeadLoss ComputeHeadLoss(const LmHead& head,
                         std::span<const HeadStudent> students,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient);

// Computes ComputeHeadLoss, tensor operation by tensor operation, as the
// reference implementation. Each chunk holds one student and one target.
HeadLoss ComputeHeadLossByTensors(const LmHead& head,
                                  std::span<const HeadStudent> students,
                                  std::span<const HeadTerm> terms,
                                  const HeadLossOptions& options,
                                  bool with_gradient);

// Returns log p [n] float32 of each token of `ids` [n] under the result of a
// teacher, at `temperature`, among the first `vocabulary` tokens; 0: among all
// tokens of its head or, if it is smaller, of given logits. Throws c10::Error
// if a token is not among the k tokens of a top_k payload, or if sizes do not
// fit together. On a GPU logits are computed in `workspace`; null: the call
// allocates its own memory.
at::Tensor TokenLogprobsOf(const LmHead& head,
                           const TeacherScores& scores,
                           const at::Tensor& ids,
                           double temperature,
                           HeadWorkspace* workspace = nullptr,
                           int64_t vocabulary = 0);

}  // namespace dapd
