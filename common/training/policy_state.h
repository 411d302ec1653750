// Serializes the whole state of a policy, for the ranks that have no checkpoint
// of their own.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/training/policy.h"

namespace dapd {

absl::StatusOr<std::string> SerializePolicyState(const Policy& policy);

// Returns DATA_LOSS for bytes that SerializePolicyState did not write.
absl::StatusOr<PolicyState> ParsePolicyState(const std::string& bytes,
                                             const ModelConfig& model,
                                             at::Device device);

}  // namespace dapd
