// Recommends how many of a number of devices should train, score and sample, by
// the arithmetic of step_cost.h and memory_plan.h.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/step_cost.h"

namespace dapd {

struct RoleSplit {
  int64_t ranks = 1;            // trainer.ranks
  int64_t teachers = 0;         // workers with a device each
  int64_t rollouts = 0;         // workers with tensor_parallel devices each
  int64_t tensor_parallel = 1;  // rollout.tensor_parallel
  double seconds = 0;           // of a step, whose phases do not overlap

  int64_t NumDevices() const {
    return ranks + teachers + rollouts * tensor_parallel;
  }
};

// The parts of a split that are already decided.
struct GivenSplit {
  std::optional<int64_t> ranks;
  std::optional<int64_t> teachers;
  std::optional<int64_t> rollouts;
  std::optional<int64_t> tensor_parallel;
};

// Returns the values of trainer.ranks, run.teacher_workers, run.rollout_workers
// and rollout.tensor_parallel that file, environment and --set give.
GivenSplit GivenBy(const LoadedConfig& loaded);

struct SplitDevices {
  int64_t count = 0;
  int64_t bytes = 0;  // memory of each; 0: unknown, not checked
};

// Returns the split with the shortest step, counted with a refreshed snapshot.
// Given parts stay unchanged. Otherwise: the number of ranks can divide a batch
// and, with trainer.shard_base, the model's layers, and the rank with the most
// micro-batches sets the pace; a rollout worker has as many GPUs as the model
// can be split over, at most kMostOfAWorker, or one core; teachers get all
// remaining devices; a role that the objective does not use gets no device; and
// each process has the least memory that it needs, on a device of its own.
// Every worker of a further teacher has a device, too, which the split does not
// count. Some devices may stay unused.
//   FAILED_PRECONDITION  the devices are too few, or too small, and why
absl::StatusOr<RoleSplit> RecommendSplit(const Config& config,
                                         const ModelConfig& model,
                                         const SampleLengths& lengths,
                                         const SplitDevices& devices,
                                         const HardwareRates& rates,
                                         const GivenSplit& given = {},
                                         const FurtherTeachers& teachers = {});

// All processes of a worker are on one machine, which usually has 8 GPUs.
inline constexpr int64_t kMostOfAWorker = 8;

// Returns the split of the processes that `dapd run` starts with `config`.
RoleSplit SplitOf(const Config& config);

// Returns `config` with the values of `split`.
Config WithSplit(Config config, const RoleSplit& split);

// Returns whether a process with this plan has the least memory that it needs
// on its own device of `bytes`.
bool FitsDevice(const RoleMemory& plan, int64_t bytes);

}  // namespace dapd
