// The failure of a task that no worker of a pool has done. It keeps the code of
// the worker's status, which says nothing of this process: not that it was told
// to stop (CANCELLED, as a connection that breaks has it), nor that its own
// data is wrong (INVALID_ARGUMENT), nor that it should be started again
// (ABORTED).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace dapd {

// With ExitCode::kInternal; UNAVAILABLE for CANCELLED.
absl::Status TaskFailure(absl::StatusCode code, const std::string& message);

// Whether `status` is such a failure. What the process itself has is whole
// then.
bool IsTaskFailure(const absl::Status& status);

}  // namespace dapd
