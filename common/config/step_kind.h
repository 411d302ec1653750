// The completions that a step trains. Most methods train in every step all that
// their terms score. In GKD (Agarwal et al., arXiv 2306.13649, algorithm 1) a
// step draws whether it trains the student's own answers or the references.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/terms/view.h"

namespace dapd {

enum class StepKind {
  kWhole,       // whatever the terms score
  kRollouts,    // sampled answers alone: terms of references count no token
  kReferences,  // references alone, and nothing is sampled
};

// Returns whether steps are of two kinds, kRollouts and kReferences: with
// `preset: gkd` and a reference_share between 0 and 1.
bool TakesTurns(const Config& config);

// Returns the kind of step `step`, from 1: with TakesTurns a draw keyed by
// run.seed and the step alone, so that every rank and every resumed run has the
// same kinds, otherwise kWhole.
StepKind StepKindOf(const Config& config, int64_t step);

// Returns the share of the steps that train the completions of that name; 1
// without TakesTurns.
double ShareOfSteps(const Config& config, Completion completion);

}  // namespace dapd
