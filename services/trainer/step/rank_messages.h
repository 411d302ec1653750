// StepPlan, which rank 0 sends the other ranks at the start of a step, and the
// answers that they send rank 0. Both travel as messages of
// proto/dapd/v1/rank.proto.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "services/trainer/step/answer_rules.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

// Answers of one step.
using PlacedAnswers = std::map<AnswerPlace, RolloutResult>;

struct StepPlan {
  int64_t step = 0;           // from 1; 0: the run is done
  PlacedAnswers recalled;     // from the ledger
  bool is_evaluated = false;  // an evaluation follows the step
};

// Parsing returns DATA_LOSS for bytes that are no message, a plan without its
// step, an answer without its place in the batch, and an answer whose
// log-probabilities are not one finite number per token.
std::string SerializePlan(const StepPlan& plan);
absl::StatusOr<StepPlan> ParsePlan(const std::string& bytes);

std::string SerializeAnswers(const PlacedAnswers& answers);
absl::StatusOr<PlacedAnswers> ParseAnswers(const std::string& bytes);

}  // namespace dapd
