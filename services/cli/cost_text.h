// The lines of `dapd check` on a run's costs: memory, work and time, and the
// best split of devices among the roles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/role_split.h"
#include "common/model/spec/step_cost.h"

namespace dapd {

// Rates of one device; a time is only predicted if all three are given.
struct GivenRates {
  double teraflops = 0;
  double memory_gigabytes = 0;
  double network_gigabytes = 0;
};

// Returns lines with the memory of each role's processes, and of a trainer's
// ranks if they split every layer.
std::vector<std::string> MemoryText(const Config& config,
                                    const ModelConfig& model,
                                    const MemoryPlan& plan);

// Returns lines with the work and traffic of a step, before and after the first
// refresh of the snapshot, and its time at the given rates.
std::vector<std::string> StepCostText(const Config& config,
                                      const ModelConfig& model,
                                      const SampleLengths& lengths,
                                      const GivenRates& given,
                                      const FurtherTeachers& teachers = {});

// Returns one line, which deploy/slurm/dapd.sbatch reads: the split of the
// devices, with the parts in `given` fixed. Returns a CONFIG error if the
// devices are too few or too small.
absl::StatusOr<std::string> SplitText(const Config& config,
                                      const ModelConfig& model,
                                      const SampleLengths& lengths,
                                      const SplitDevices& devices,
                                      const GivenRates& rates,
                                      const GivenSplit& given,
                                      const FurtherTeachers& teachers = {});

}  // namespace dapd
