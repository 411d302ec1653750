// Checks that the runs of a sweep can train on their data; otherwise a mistake
// would only show when a run's turn comes.
#pragma once

#include "absl/status/status.h"

#include "services/cli/sweep/sweep_plan.h"

namespace dapd {

// Reads data.path and evaluation.path of the unfinished runs like `dapd check`,
// with each run's columns and limits, once for runs with equal data settings.
// Reports all mistakes at once, each with its first run; exit code of the first
// mistake.
absl::Status CheckSweepData(const SweepPlan& plan);

}  // namespace dapd
