// metrics.jsonl as earlier attempts at a run left it: a line a step, as
// StepLine (common/training/metric_table.h) writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/json.h"
#include "common/charts/run_history.h"
#include "common/training/clip_watch.h"

namespace dapd {

// What earlier attempts left in metrics.jsonl.
struct KeptLines {
  std::map<std::string, double> seconds;  // by phase
  nlohmann::ordered_json last;            // null: none
};

// Drops the lines behind `last_step`, those steps are done again, and one that
// a crash cut off. The others begin the history, and what is watched over many
// steps. Damaged lines go as well; the file as it was is kept beside it, as
// metrics.jsonl.damaged.
absl::StatusOr<KeptLines> KeepLines(const std::string& path,
                                    int64_t last_step,
                                    RunHistory* history,
                                    ClipWatch* watch);

// Adds those of a step's line, by phase.
void AddSeconds(const nlohmann::ordered_json& line,
                std::map<std::string, double>* sums);

}  // namespace dapd
