// What a teacher returns for each scored token (proto/dapd/v1/teacher.proto
// lists the tensors of each).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

enum class Payload {
  kHiddenStates,
  kLogits,
  kTopK,
};

// "hidden_states", "logits" or "top_k", as in the configuration.
// INVALID_ARGUMENT lists them.
absl::StatusOr<Payload> ParsePayload(const std::string& name);

}  // namespace dapd
