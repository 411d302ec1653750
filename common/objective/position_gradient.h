// Computes the gradient of a term's loss at a single token position, for probes
// that look at positions one by one (common/data/gradient_compatibility.h).
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

// Returns why a term has no loss of a single position; empty: it has one. A
// routed target compares each token with the averages of a micro-batch.
std::string ProblemWithPositions(const Term& term);

struct PositionGradient {
  double loss = 0.0;       // with the term's clip
  double unclipped = 0.0;  // the divergence
  // The gradient with respect to live.Tensors(), in their order, as new
  // tensors.
  std::vector<at::Tensor> tensors;
};

// Computes the loss of scored token `position` (from 0) of `term`: its
// divergence from the target there, with weight 1, without importance weights
// and skip_tokens. The passes are the same as in training (micro_batch.h), over
// the tokens up to this position only; teachers' scores are from ScoreLocally,
// for whole views. Only one token's logits over the vocabulary are held. Throws
// c10::Error if the position is not scored, if the sample lacks data that the
// term reads, or if ProblemWithPositions is not empty.
PositionGradient GradientAtPosition(const ModelWeights& weights,
                                    const Adapter& live,
                                    const Term& term,
                                    const ScoredSample& sample,
                                    int64_t position,
                                    const MicroBatchOptions& options);

// Returns the dot product of two gradients, added up in double precision. At
// most one tensor of each gradient is converted at a time.
double DotProduct(const std::vector<at::Tensor>& a,
                  const std::vector<at::Tensor>& b);

}  // namespace dapd
