// Makes the trainer's pages on its metrics port, besides /metrics and /healthz:
//   /              the status page (page.h)
//   /status.json   the output of `dapd status --json`
//   /history.json  the steps so far, at most 2,000 points (run_history.h)
//   /answers.json  the answers to show (run_answers.h)
#pragma once

#include <map>
#include <string>

#include "common/charts/run_history.h"
#include "common/metrics/http_answer.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// The arguments must outlive the pages.
std::map<std::string, HttpPage> StatusPages(const TrainerStatus* status,
                                            const RunHistory* history,
                                            const RunAnswers* answers);

}  // namespace dapd
