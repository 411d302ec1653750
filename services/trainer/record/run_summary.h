// RunSummary: summary.json of a finished run, and its closing text on stderr.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/training/clip_watch.h"
#include "services/trainer/record/evaluation_report.h"

namespace dapd {

struct RunSummary {
  const std::string& folder;
  int64_t steps = 0;
  int64_t start_step = 0;  // before this attempt's first; 0: a new run
  double seconds = 0.0;    // of this attempt
  const std::map<std::string, double>& seconds_by_phase;  // of all attempts
  const std::map<std::string, EvaluationReport>& evaluations;  // by their names
  std::string best;                     // of evaluations; empty: none
  bool has_evaluations_within = false;  // evaluation.interval is set
  std::vector<ClipFinding> clip_findings;
};

// Writes summary.json into the folder: {"steps", "seconds", "seconds_by_phase",
// "evaluation", "best"}.
absl::Status WriteSummary(const RunSummary& summary);

// Returns several lines; the last has no newline.
std::string ClosingText(const RunSummary& summary);

}  // namespace dapd
