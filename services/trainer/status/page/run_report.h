// Writes report.html: a run's curves, evaluations with their intervals, answers
// and configuration in one file that needs no server.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "common/charts/run_history.h"
#include "common/config/load_config.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// Replaces `<folder>/report.html`. `outcome`: how the training ended.
absl::Status WriteReport(const std::string& folder,
                         const LoadedConfig& loaded,
                         const TrainerStatus& status,
                         const RunHistory& history,
                         const AnswersToShow& answers,
                         const absl::Status& outcome);

}  // namespace dapd
