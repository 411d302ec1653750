// outcome.json says how the last attempt at a run ended. Without it nobody
// could later tell a failure from a power cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace dapd {

struct RunOutcome {
  std::string state;  // "finished", "failed" or "stopped"
  int64_t exit_code = 0;
  std::string message;  // of the error; empty if it finished
  absl::Time time;      // to the second
};

// Returns the outcome of an attempt that ended with `status`; exit code
// kInterrupted means that it was stopped.
RunOutcome OutcomeOf(const absl::Status& status);

// Writes the file into the run folder, or removes it as a new attempt begins.
absl::Status WriteOutcome(const std::string& folder, const RunOutcome& outcome);
void ForgetOutcome(const std::string& folder);

// Called by the process that started the run's processes, once they are gone.
// Corrects the outcome of the attempt that began at `start` and ended with
// `status`. A trainer that was stopped because another process failed knows
// only of the stop, a trainer whose workers died does not know why, and a
// killed trainer has written nothing; a failure replaces their outcome. It
// replaces neither the outcome of a finished run nor the outcome of an older
// attempt, which this attempt ended too early to remove. Writes nothing if
// another process goes on with the run; errors are logged.
void CorrectOutcome(const std::string& folder,
                    const absl::Status& status,
                    absl::Time start);

// Returns whether `seen`, an outcome that another process observed, tells no
// more of the end than the trainer's own `word`: it is a stop, or its text does
// not quote `word`.
bool AddsNothing(const RunOutcome& seen, const RunOutcome& word);

// Called by a process that finds a finished run. Records that it finished,
// since the attempt that finished it may have been killed or stopped after its
// summary. Returns whether it wrote: in that case the end may be untold,
// because a process tells of the end before it records it. Writes nothing, and
// returns false, if another process holds the run; errors are logged.
bool RecordFinished(const std::string& folder);

// Returns nothing if the file is missing or WriteOutcome did not write it.
std::optional<RunOutcome> ReadOutcome(const std::string& folder);

// Calls ReadOutcome for an attempt that began at `start` or later.
std::optional<RunOutcome> ReadOutcomeSince(const std::string& folder,
                                           absl::Time start);

}  // namespace dapd
