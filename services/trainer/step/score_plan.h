// ScorePlan decides which passes over a sample's views the teachers compute,
// under which set of weights, and which of them before the sample's answer is
// there.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/terms/payload.h"
#include "common/terms/target.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"
#include "services/trainer/step/answer_rules.h"
#include "services/trainer/workers/score_task.h"

namespace dapd {

// The scores that a run needs of its teachers.
struct ScoreQuestions {
  std::vector<TeacherPass> passes;
  Payload payload = Payload::kHiddenStates;
  int64_t top_k = 0;
  double temperature = 1.1;  // of the objective, for a top_k payload
};

// The weights with which a pass is scored.
struct ScoreSource {
  std::string teacher;  // a further teacher; empty: the student's own model
  WeightSet weights = WeightSet::kBase;
  auto operator<=>(const ScoreSource&) const = default;
};

// The teachers' tasks for the samples of one batch.
struct ScorePlan {
  ScoreQuestions questions;
  // The sets whose weights equal the base now; one pass then serves all of
  // them.
  std::set<WeightSet> at_base;
  ReferenceSource source = ReferenceSource::kGiven;

  // Returns the weights that provide the scores of `pass` for a sample whose
  // row names `row_teacher`; empty: the student's own model.
  ScoreSource SourceOf(const TeacherPass& pass,
                       const std::string& row_teacher) const;
  // Returns a sample's tasks, without ids and tokens, one for each source: for
  // the passes over views whose tokens are known before any answer is, or for
  // the other passes.
  std::vector<ScoreTask> Tasks(bool known_at_start,
                               const std::string& row_teacher) const;
  // Returns the tasks whose prefixes follow from the rollout's first tokens.
  std::vector<ScoreTask> Tellable(std::vector<ScoreTask> tasks) const;
};

}  // namespace dapd
