// What there is to show of a run that an earlier process finished, out of its
// folder: for a trainer that stays (trainer.when_done: serve) and is started
// again.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/charts/run_history.h"
#include "common/config/config.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// Sets all four to what they were when the run in `folder` ended, but for what
// only its process knew: counters, rates, workers. Answers and evaluations that
// cannot be read are a warning. DATA_LOSS for a metrics.jsonl that is damaged.
absl::Status ShowFinishedRun(const Config& config,
                             const std::string& folder,
                             TrainerMetrics* metrics,
                             TrainerStatus* status,
                             RunHistory* history,
                             RunAnswers* answers);

}  // namespace dapd
