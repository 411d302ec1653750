// How a run asks its held-out problems: the section `evaluation`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/view_builder.h"

namespace dapd {

// The longest answer: evaluation.max_new_tokens, else rollout.max_new_tokens.
int64_t HeldOutAnswerTokens(const Config& config);

// By evaluation.prompt and evaluation.thinking. Where that is the sampler's own
// prompt it is cut as training cuts it; any other is whole.
absl::StatusOr<std::vector<int32_t>> HeldOutPrompt(const Config& config,
                                                   const ViewBuilder& views,
                                                   const std::string& problem);

}  // namespace dapd
