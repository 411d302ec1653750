// StepPlan: what rank 0 tells the other ranks at the start of a step, and the
// answers that they tell rank 0. On their way both are messages of
// proto/dapd/v1/rank.proto.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "services/trainer/step/answer_place.h"
#include "services/trainer/workers/rollout_task.h"

namespace dapd {

struct StepPlan {
  int64_t step = 0;  // from 1; 0: there is none, the run is done
  std::map<AnswerPlace, RolloutResult> recalled;  // known already
  bool is_evaluated = false;                      // the run pauses behind it
};

// An answer on its way from one rank to another.
struct BatchAnswer {
  AnswerPlace place;
  RolloutResult result;
};

// Parsing gives DATA_LOSS for what no rank sends: bytes that are no message, a
// plan without its step, an answer without its place in the batch, or one with
// log-probabilities that are not one finite number per token.
std::string SerializePlan(const StepPlan& plan);
absl::StatusOr<StepPlan> ParsePlan(const std::string& bytes);

std::string SerializeAnswers(const std::vector<BatchAnswer>& answers);
absl::StatusOr<std::vector<BatchAnswer>> ParseAnswers(const std::string& bytes);

}  // namespace dapd
