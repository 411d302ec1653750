// The process exit codes every DAPD program uses, and how an absl::Status
// carries one from where an error is understood to main().
#pragma once

#include <string>

#include "absl/status/status.h"

namespace dapd {

enum class ExitCode : int {
  kOk = 0,
  // A bug (please report it), or too little room on a disk or in memory; the
  // message says which of these. The program can be started again once there is
  // room.
  kInternal = 1,
  kUsage = 2,  // wrong command line
  // A wrong configuration file, environment or --set, or missing permission for
  // something that they name. Starting again does not help before somebody has
  // corrected it.
  kConfig = 3,
  kData = 4,             // unusable model, adapter, tokenizer or data set
  kPeerUnavailable = 5,  // another service cannot be reached
  kRunLost = 6,          // a corrupted or lost run
  kRestart = 75,         // start all ranks of the job again
  kInterrupted = 130,    // ended by SIGINT or SIGTERM before it was done
};

// Returns `status` with `code` attached. An OK status stays as it is; a code
// that is already attached stays, so the innermost place decides.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// Returns the attached code, or the code that follows from the status code:
// INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, OUT_OF_RANGE -> kData;
// PERMISSION_DENIED -> kConfig; UNAVAILABLE, DEADLINE_EXCEEDED ->
// kPeerUnavailable; DATA_LOSS -> kRunLost; ABORTED -> kRestart; CANCELLED ->
// kInterrupted; anything else, RESOURCE_EXHAUSTED too -> kInternal.
ExitCode ExitCodeOf(const absl::Status& status);

// Shorthands for the two most common edges.
absl::Status ConfigError(const std::string& message);
absl::Status DataError(const std::string& message);

}  // namespace dapd
