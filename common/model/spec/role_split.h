// How many of a number of devices should train, score and sample, by the
// arithmetic of step_cost.h and memory_plan.h.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/step_cost.h"

namespace dapd {

struct RoleSplit {
  int64_t ranks = 1;            // trainer.ranks
  int64_t teachers = 0;         // workers with a device each
  int64_t rollouts = 0;         // workers with tensor_parallel devices each
  int64_t tensor_parallel = 1;  // rollout.tensor_parallel
  double seconds = 0;           // of a step, its phases one after the other

  int64_t NumDevices() const {
    return ranks + teachers + rollouts * tensor_parallel;
  }
};

// The parts of a split that are decided already.
struct GivenSplit {
  std::optional<int64_t> ranks;
  std::optional<int64_t> teachers;
  std::optional<int64_t> rollouts;
  std::optional<int64_t> tensor_parallel;
};

// What file, environment and --set say of trainer.ranks, run.teacher_workers,
// run.rollout_workers and rollout.tensor_parallel.
GivenSplit GivenBy(const LoadedConfig& loaded);

struct SplitDevices {
  int64_t count = 0;
  int64_t bytes = 0;  // of memory of each; 0: not known, and not looked at
};

// The split whose step is the shortest once the snapshot has been refreshed.
// What is given stays as it is. Of the rest: ranks are as many as a batch can
// be shared by and the model's layers can be split over (trainer.shard_base),
// and the one with the most micro-batches sets the pace; a rollout worker has
// as many GPUs as the model can be split over, at most kMostOfAWorker, or one
// core; teachers are all that is left; roles of which the objective asks
// nothing get no device; and each process has the memory that it needs at the
// least, on a device of its own. Fewer devices than there are may be in use at
// the end.
//   FAILED_PRECONDITION  the devices are too few, or too small, and why
absl::StatusOr<RoleSplit> RecommendSplit(const Config& config,
                                         const ModelConfig& model,
                                         const SampleLengths& lengths,
                                         const SplitDevices& devices,
                                         const HardwareRates& rates,
                                         const GivenSplit& given = {});

// The processes of a worker are on one machine, which has 8 GPUs as a rule.
inline constexpr int64_t kMostOfAWorker = 8;

// The split that `config` has: the processes that `dapd run` starts with it.
RoleSplit SplitOf(const Config& config);

// `config` with that split.
Config WithSplit(Config config, const RoleSplit& split);

// Whether a process with this plan finds what it needs at the least on a device
// of `bytes` of its own.
bool FitsDevice(const RoleMemory& plan, int64_t bytes);

}  // namespace dapd
