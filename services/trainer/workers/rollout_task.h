// RolloutTask and RolloutResult: a request to a rollout worker, and the answer.
// Needs neither gRPC nor LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/generation/decode_request.h"
#include "common/grader/grader_result.h"

namespace dapd {

struct RolloutTask {
  uint64_t id = 0;  // unique among the tasks without a result
  DecodeRequest request;
};

// An answer and the policy that sampled it.
struct RolloutResult : SampledAnswer {
  uint64_t id = 0;  // the task's
  int64_t policy_version = 0;
  std::string adapter_digest;
  // The result of a grader of the user's own, once it is there.
  std::optional<GraderResult> grade = {};
};

}  // namespace dapd
