// outcome.json: how the last attempt at a run ended. Who looks at a run folder
// later cannot tell a failure from a power cut without it.
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

// What `status`, with which an attempt ended, comes to: a stop is what exit
// code kInterrupted stands for.
RunOutcome OutcomeOf(const absl::Status& status);

// Writes the file into the run folder, or removes it as a new attempt begins.
absl::Status WriteOutcome(const std::string& folder, const RunOutcome& outcome);
void ForgetOutcome(const std::string& folder);

// For whoever started the run's processes, once they are gone: the attempt that
// began at `start` ended with `status`. A trainer that was told to stop because
// another process had failed knows only of the stop, one whose workers died
// does not know by what, and one that was killed has written nothing: a failure
// takes the place of that. So it does not of the end of a run that has
// finished, nor of the outcome of an older attempt, which this one did not get
// as far as to forget. Writes nothing if another process goes on with the run;
// what goes wrong is logged.
void CorrectOutcome(const std::string& folder,
                    const absl::Status& status,
                    absl::Time start);

// Whether `seen`, from outside, says no more of the same end than the process's
// own `word` does: it is a stop, of which there is no more to say, or has
// another text and does not quote that one.
bool AddsNothing(const RunOutcome& seen, const RunOutcome& word);

// For whoever finds a run that has finished: its outcome says so from here on.
// The attempt that finished it may have been killed, or told to stop, behind
// its summary. True if that is so: whoever ends a run tells of it before it
// records it. Writes nothing, and false, if another process holds the run; what
// goes wrong is logged.
bool RecordFinished(const std::string& folder);

// Nothing without the file, and for anything that WriteOutcome did not write.
std::optional<RunOutcome> ReadOutcome(const std::string& folder);

// The same, of an attempt that began at `start` or later.
std::optional<RunOutcome> ReadOutcomeSince(const std::string& folder,
                                           absl::Time start);

}  // namespace dapd
