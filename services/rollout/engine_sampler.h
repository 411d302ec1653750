// The real Sampler: a GenerationEngine over a model folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/collective/collective.h"
#include "common/config/config.h"
#include "common/rpc/transfer/served_policy.h"
#include "services/rollout/sampler.h"

namespace dapd {

struct LoadedSampler {
  std::unique_ptr<Sampler> sampler;
  WorkerDescription description;
};

// Returns every field of `description` except the slots, which the sampler
// knows: a GPU may have fewer slots than rollout.slots.
LoadedSampler Offer(WorkerDescription description,
                    std::unique_ptr<Sampler> sampler);

// Reads the model that `config` names and prepares rollout.slots slots; blocks
// until the weights are read. `num_tokens`: the ids that the tokenizer knows;
// the padding rows above them are never sampled.
absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens);

// Returns the sampler of a model that the ranks of `ranks` compute together;
// this process is rank 0. Returns once all ranks have read their shares.
// `on_lost` receives an error between the ranks; afterwards the sampler must
// not be used. `ranks` must outlive the sampler.
absl::StatusOr<LoadedSampler> LoadSharedSampler(const Config& config,
                                                int64_t num_tokens,
                                                Collective& ranks,
                                                OnRanksLost on_lost);

// Runs on every other rank until rank 0's sampler is destroyed.
absl::Status ServeSharedSampler(const Config& config,
                                int64_t num_tokens,
                                Collective& ranks);

}  // namespace dapd
