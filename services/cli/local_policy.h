// A policy in this process, with the model under it: what `replay` and `probe
// compatibility` share.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/weights/weights.h"
#include "common/training/policy.h"

namespace dapd {

struct LocalPolicy {
  std::shared_ptr<const ModelWeights> weights;
  TextPipeline text;
  std::unique_ptr<Policy> policy;
};

// The configuration's model and prompts. `adapter`, `snapshot`: PEFT folders or
// ids; without the first the live adapter is a fresh one, without the second
// the snapshot is the base. Sets the number of compute threads.
absl::StatusOr<LocalPolicy> LoadLocalPolicy(const Config& config,
                                            const std::string& adapter,
                                            const std::string& snapshot);

}  // namespace dapd
