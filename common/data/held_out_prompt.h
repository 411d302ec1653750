// Builds the prompts of a run's held-out problems by the section `evaluation`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/row_material.h"
#include "common/data/view_builder.h"

namespace dapd {

// Returns the length of the longest answer: evaluation.max_new_tokens, or
// rollout.max_new_tokens if it is 0.
int64_t HeldOutAnswerTokens(const Config& config);

// Builds the prompt by evaluation.prompt and evaluation.thinking. If it is the
// sampler's prompt it is cut as in training; any other prompt is not cut.
absl::StatusOr<std::vector<int32_t>> HeldOutPrompt(const Config& config,
                                                   const ViewBuilder& views,
                                                   const PromptSource& source);

}  // namespace dapd
