// Whether the runs of a sweep can train on the data that they name: a run that
// cannot would be found out only when its turn comes.
#pragma once

#include "absl/status/status.h"

#include "services/cli/sweep/sweep_plan.h"

namespace dapd {

// Reads data.path and evaluation.path of the runs that are not done as `dapd
// check` does, with the columns and limits of each; runs that do not differ in
// them share one reading. All mistakes at once, each with the first of its
// runs; exit code of the first.
absl::Status CheckSweepData(const SweepPlan& plan);

}  // namespace dapd
