// What the students of one part of a pack lose: how the terms, a sample's
// scores and its sampler's log-probabilities make the terms of a head loss.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "common/model/weights/weights.h"
#include "common/objective/head_loss.h"
#include "common/objective/micro_batch.h"
#include "common/objective/pack_plan.h"
#include "common/objective/token_routing.h"
#include "common/tensor/aten.h"
#include "common/terms/term.h"
#include "common/terms/view.h"

namespace dapd {

// Of a micro-batch.
struct LossInputs {
  const ModelWeights& weights;
  const std::vector<Term>& terms;
  std::span<const ScoredSample> samples;
  std::vector<const Views*> views;  // of the samples
  // Of each term: the gradient's factor over all its denominator.
  std::vector<double> term_weights;
  HeadLossOptions head;
  bool with_gradient = false;
  std::map<size_t, TokenRoutes> routes = {};  // of RouteTerms
};

// Which pass each scored token of each sample takes, for the terms where that
// differs, by term. Those that a term leaves out have no part in its averages.
std::map<size_t, TokenRoutes> RouteTerms(const LossInputs& inputs);

// Losses of a part's students against their targets; adds to `result`.
// `hidden`: one per student; their gradients take their place where there are
// any.
void AddPartLoss(const LossInputs& inputs,
                 const PackPart& part,
                 std::span<const at::Tensor> hidden,
                 MicroBatchResult& result);

}  // namespace dapd
