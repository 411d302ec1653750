// The gradient of a term's loss at one token position alone, for probes that
// look at positions one by one (common/data/gradient_compatibility.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/objective/micro_batch.h"
#include "common/tensor/aten.h"
#include "common/terms/term.h"

namespace dapd {

// Why a term has no loss of one position alone, empty if it has: a routed
// target compares each token with the averages of a micro-batch.
std::string ProblemWithPositions(const Term& term);

struct PositionGradient {
  double loss = 0.0;       // with the term's clip
  double unclipped = 0.0;  // the divergence
  // With respect to live.Tensors(), in their order; new tensors.
  std::vector<at::Tensor> tensors;
};

// The loss of scored token `position`, from 0, of what `term` scores: its
// divergence from the target there, with weight 1, without importance and
// skip_tokens. The same passes as training's (micro_batch.h), over the tokens
// up to this position only; teachers' scores as ScoreLocally gives them, of
// whole views. One token's logits are all that is held of the vocabulary.
// Throws c10::Error if the position is not scored, the sample lacks what the
// term reads, or ProblemWithPositions.
PositionGradient GradientAtPosition(const ModelWeights& weights,
                                    const Adapter& live,
                                    const Term& term,
                                    const ScoredSample& sample,
                                    int64_t position,
                                    const MicroBatchOptions& options);

// The dot product of two gradients, added up in double precision. At most one
// tensor of each is held in it.
double DotProduct(const std::vector<at::Tensor>& a,
                  const std::vector<at::Tensor>& b);

}  // namespace dapd
