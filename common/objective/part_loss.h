// Computes the loss of the students of one part of a pack: the terms, a
// sample's scores and its sampler's log-probabilities become the terms of a
// head loss.
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

// Inputs of a micro-batch.
struct LossInputs {
  const ModelWeights& weights;
  const std::vector<Term>& terms;
  std::span<const ScoredSample> samples;
  std::vector<const Views*> views;  // the views of each sample
  // For each term the factor of its gradient, divided by its whole denominator.
  std::vector<double> term_weights;
  HeadLossOptions head;  // `vocabulary` from VocabularyOf, so that calls agree
  bool with_gradient = false;
  std::map<size_t, TokenRoutes> routes = {};  // from RouteTerms
};

// Returns head.vocabulary or, if that is 0, the number of tokens that the heads
// and given logits of all samples share. Throws c10::Error as CommonVocabulary
// does (common_vocabulary.h).
int64_t VocabularyOf(const LossInputs& inputs);

// Decides for every routed term which pass each scored token of each sample
// takes; the key is the index of the term. Tokens that a term leaves out take
// no part in its averages.
std::map<size_t, TokenRoutes> RouteTerms(const LossInputs& inputs);

// Computes the losses of a part's students against their targets and adds them
// to `result`. `hidden` has one tensor per student; if a gradient is wanted, it
// replaces them.
void AddPartLoss(const LossInputs& inputs,
                 const PackPart& part,
                 std::span<const at::Tensor> hidden,
                 MicroBatchResult& result);

}  // namespace dapd
