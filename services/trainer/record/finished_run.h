// Shows a run that an earlier process finished, from its folder: for a trainer
// that stays (trainer.when_done: serve) and is started again.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "services/trainer/record/run_displays.h"

namespace dapd {

// Sets `displays` to their state when the run in `folder` ended, except for
// what only its process knew: counters, rates, workers. A warning names
// answers, evaluations and lines of metrics.jsonl that cannot be read.
absl::Status ShowFinishedRun(const Config& config,
                             const std::string& folder,
                             const RunDisplays& displays);

}  // namespace dapd
