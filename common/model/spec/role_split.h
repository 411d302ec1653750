// How many of a number of devices should train, score and sample, by the
// arithmetic of step_cost.h.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/step_cost.h"

namespace dapd {

struct RoleSplit {
  int64_t ranks = 1;     // trainer.ranks
  int64_t teachers = 0;  // workers with a device each
  int64_t rollouts = 0;  // workers with rollout.tensor_parallel devices each
  double seconds = 0;    // of a step, its phases one after the other
};

// The split whose step is the shortest once the snapshot has been refreshed.
// Ranks are as many as a batch can be shared by and the model's layers can be
// split over (trainer.shard_base), and the one with the most micro-batches sets
// the pace; roles of which the objective asks nothing get no device. Memory is
// not looked at: see memory_plan.h. FAILED_PRECONDITION if the devices are too
// few, and says how many it takes.
absl::StatusOr<RoleSplit> RecommendSplit(const Config& config,
                                         const ModelConfig& model,
                                         const SampleLengths& lengths,
                                         int64_t devices,
                                         const HardwareRates& rates);

// `config` with that split.
Config WithSplit(Config config, const RoleSplit& split);

}  // namespace dapd
