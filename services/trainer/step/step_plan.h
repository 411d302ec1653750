// StepPlan: what rank 0 tells the other ranks at the start of a step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "services/trainer/workers/rollout_client.h"

namespace dapd {

struct StepPlan {
  int64_t step = 0;  // from 1; 0: there is none, the run is done
  // Answers that are known already, by their sample's place in the batch.
  std::map<int64_t, RolloutResult> recalled;
};

// An answer on its way from one rank to another.
struct BatchAnswer {
  int64_t sample = 0;  // its place in the batch
  RolloutResult result;
};

std::string SerializePlan(const StepPlan& plan);
absl::StatusOr<StepPlan> ParsePlan(const std::string& bytes);

std::string SerializeAnswers(const std::vector<BatchAnswer>& answers);
absl::StatusOr<std::vector<BatchAnswer>> ParseAnswers(const std::string& bytes);

}  // namespace dapd
