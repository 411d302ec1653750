// RolloutTask and RolloutResult: a request to a rollout worker, and the answer.
// Needs neither gRPC nor LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/generation/decode_request.h"

namespace dapd {

struct RolloutTask {
  uint64_t id = 0;  // unique among the tasks without a result
  DecodeRequest request;
};

struct RolloutResult {
  uint64_t id = 0;
  std::vector<int32_t> ids;     // the answer, its end token included
  std::vector<float> logprobs;  // one each, at temperature 1, unfiltered
  FinishReason finish_reason = FinishReason::kEos;
  int64_t policy_version = 0;  // always the current policy's
  std::string adapter_digest;
};

}  // namespace dapd
