// What there is to show of a run that an earlier process finished, out of its
// folder: for a trainer that stays (trainer.when_done: serve) and is started
// again.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "services/trainer/record/run_displays.h"

namespace dapd {

// Sets them to what they were when the run in `folder` ended, but for what
// only its process knew: counters, rates, workers. Answers, evaluations and
// lines of metrics.jsonl that cannot be read are a warning.
absl::Status ShowFinishedRun(const Config& config,
                             const std::string& folder,
                             const RunDisplays& displays);

}  // namespace dapd
