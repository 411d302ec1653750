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

// Of `description` all but the slots, which the sampler knows: on a GPU they
// may be fewer than rollout.slots.
LoadedSampler Offer(WorkerDescription description,
                    std::unique_ptr<Sampler> sampler);

// Reads the model that `config` names and prepares rollout.slots slots. Blocks
// for as long as the weights take to read. `num_tokens`: ids the tokenizer
// knows; the padding rows above are never sampled.
absl::StatusOr<LoadedSampler> LoadEngineSampler(const Config& config,
                                                int64_t num_tokens);

// The same for the model that the ranks of `ranks` compute together, of which
// this is rank 0; returns once all have read their shares. `on_lost` hears of
// an error between them, after which the sampler is of no use. `ranks` must
// outlive the sampler.
absl::StatusOr<LoadedSampler> LoadSharedSampler(const Config& config,
                                                int64_t num_tokens,
                                                Collective& ranks,
                                                OnRanksLost on_lost);

// Another rank's part of it, until rank 0's sampler is gone.
absl::Status ServeSharedSampler(const Config& config,
                                int64_t num_tokens,
                                Collective& ranks);

}  // namespace dapd
