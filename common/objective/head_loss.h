// The frozen LM head and the divergences in one, over chunks of tokens: no
// [tokens, V] tensor of a whole view exists, and the head gets no gradient.
//
// A call takes all students that score the same tokens, with all their
// teachers. Of each chunk every source's logits (students, and each teacher
// once, however many terms share it) come out of one product with the head; one
// pass a token turns them into sums and, in place, into the gradient of the
// students' logits; one product with the head turns that into the gradient of
// their hidden states. Equations: clipped_kl.h; passes: kernels/clipped_kl.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/objective/clipped_kl.h"
#include "common/objective/head_workspace.h"
#include "common/tensor/aten.h"

namespace dapd {

// What a teacher returned for the n scored tokens of a view: one of three.
struct TeacherScores {
  at::Tensor hidden;        // [n, hidden] behind the final norm, or
  at::Tensor logits;        // [n, V] float32, or
  at::Tensor top_ids;       // [n, k] int64 with
  at::Tensor top_logprobs;  // [n, k] float32, at the objective's temperature
};

// One teacher against one student of the call. Teachers that are the same
// tensor are computed once.
struct HeadTerm {
  const TeacherScores* teacher = nullptr;
  double clip = 0.05;
  double token_weight = 0.0;  // factor of each token's loss in the gradient
  size_t student = 0;         // index into the call's students
};

struct HeadLossOptions {
  double temperature = 1.1;
  // Of a chunk's logits; 0: 336 MiB, which are 115 tokens of five sources at V
  // = 151,936, and 896 MiB on a GPU.
  int64_t chunk_bytes = 0;
  // Kept between calls by the caller; null: memory of the call's own.
  HeadWorkspace* workspace = nullptr;
};

struct HeadLoss {
  std::vector<DivergenceSums> sums;  // one a term
  // d(sum over terms and tokens of token_weight * loss) / d(student's hidden),
  // [n, hidden] in the head's dtype, one a student; empty unless asked for.
  std::vector<at::Tensor> grad_hidden;
};

// `head` [V, hidden] float32 or bfloat16; `students` [n, hidden] each in the
// head's dtype, taken without their history. On the CPU neither the number of
// threads nor chunk_bytes changes a bit of the result. top_k payloads, and a
// GPU without own kernels, take the path of ComputeHeadLossByTensors.
HeadLoss ComputeHeadLoss(const at::Tensor& head,
                         std::span<const at::Tensor> students,
                         std::span<const HeadTerm> terms,
                         const HeadLossOptions& options,
                         bool with_gradient);

// The same, tensor operation by tensor operation: the fast path's twin. Its
// chunks hold one student and one teacher.
HeadLoss ComputeHeadLossByTensors(const at::Tensor& head,
                                  std::span<const at::Tensor> students,
                                  std::span<const HeadTerm> terms,
                                  const HeadLossOptions& options,
                                  bool with_gradient);

}  // namespace dapd
