// Which passes over a sample's views the teachers are asked for, under which
// set of weights, and which of them before its answer is there.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "common/terms/payload.h"
#include "common/terms/target.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/workers/score_task.h"

namespace dapd {

// What is asked of the teachers throughout a run.
struct ScoreQuestions {
  std::vector<TeacherPass> passes;
  Payload payload = Payload::kHiddenStates;
  int64_t top_k = 0;
  double temperature = 1.1;  // of the objective, for a top_k payload
};

// Of the samples of one batch.
struct ScorePlan {
  ScoreQuestions questions;
  // The sets whose weights are those of the base now; one pass then serves all
  // of them.
  std::set<WeightSet> at_base;
  ReferenceSource source = ReferenceSource::kGiven;

  // The set that the scores of `weights` are asked of.
  WeightSet SourceOf(WeightSet weights) const {
    return at_base.contains(weights) ? WeightSet::kBase : weights;
  }
  // A sample's tasks for the passes over views whose tokens are known before
  // any answer is, or for the others: one for each set of weights, without ids
  // and tokens.
  std::vector<ScoreTask> Tasks(bool known_at_start) const;
  // Those of `tasks` whose prefixes the rollout's first tokens tell.
  std::vector<ScoreTask> Tellable(std::vector<ScoreTask> tasks) const;
};

}  // namespace dapd
