// Names what a teacher returns for each scored token
// (proto/dapd/v1/teacher.proto lists the tensors of each payload).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

enum class Payload {
  kHiddenStates,
  kLogits,
  kTopK,
};

// `name` is "hidden_states", "logits" or "top_k", as in the configuration. The
// error for any other name is INVALID_ARGUMENT and lists these.
absl::StatusOr<Payload> ParsePayload(const std::string& name);

}  // namespace dapd
