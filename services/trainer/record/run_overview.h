// RunOverview: a run at a glance, read from its folder, for lists of runs and
// for the notice of its end. Does not disturb a running trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "services/trainer/record/evaluation_report.h"
#include "services/trainer/record/run_outcome.h"

namespace dapd {

enum class RunState {
  kRunning,      // a trainer holds the folder
  kPaused,       // a trainer holds the folder and waits for its disk
  kFinished,     // all steps are taken, and the summary is written
  kFailed,       // the last attempt said that it failed
  kInterrupted,  // it was stopped, or its processes were killed
};
// Returns "running", "paused", "finished", "failed", "interrupted".
const char* NameOf(RunState state);

struct RunOverview {
  std::string folder;
  std::string name;  // of the folder
  RunState state = RunState::kInterrupted;
  int64_t step = 0;            // the last one
  int64_t steps = 0;           // to take; 0 if it never began
  std::optional<double> loss;  // of the last step; nothing if it is not finite
  std::string adapter_digest;  // after the last step
  // Nothing if the held-out digest of `after` differs.
  std::optional<EvaluationReport> before;
  std::optional<EvaluationReport> after;  // only of a finished run
  absl::Time last_written;                // of any of the run's records
  std::optional<RunOutcome> outcome;      // of the last attempt
};

// Reads a run's folder. A folder with nothing but an outcome is a run that
// ended before it began, for instance because its data could not be read. Fails
// with exit code kData, with the file's name, if `folder` holds no run or a
// file of it cannot be read.
absl::StatusOr<RunOverview> ReadRunOverview(const std::string& folder);

}  // namespace dapd
