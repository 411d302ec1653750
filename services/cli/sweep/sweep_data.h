// Whether the runs of a sweep can train on their data, which otherwise only
// shows when a run's turn comes.
#pragma once

#include "absl/status/status.h"

#include "services/cli/sweep/sweep_plan.h"

namespace dapd {

// Reads data.path and evaluation.path of the unfinished runs as `dapd check`
// does, with the columns and limits of each; runs with the same data settings
// share one reading. Reports all mistakes at once, each with the first of its
// runs; exit code of the first mistake.
absl::Status CheckSweepData(const SweepPlan& plan);

}  // namespace dapd
