// The real Sampler: a GenerationEngine over a model folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/rpc/served_policy.h"
#include "services/rollout/sampler.h"

namespace dapd {

struct LoadedSampler {
  std::unique_ptr<Sampler> sampler;
  WorkerDescription description;
};

// Reads the model that `config` names and prepares rollout.slots slots. Blocks
// for as long as the weights take to read. `num_tokens`: ids the tokenizer
// knows; the padding rows above are never sampled.
absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens);

}  // namespace dapd
