// The failure of a task that no worker of a pool could compute. It keeps the
// code of the worker's status, which says nothing about this process: neither
// that it was asked to stop (CANCELLED, also the code of a broken connection),
// nor that its own data is wrong (INVALID_ARGUMENT), nor that it should be
// started again (ABORTED).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace dapd {

// The status has ExitCode::kInternal; CANCELLED becomes UNAVAILABLE.
absl::Status TaskFailure(absl::StatusCode code, const std::string& message);

// Returns whether `status` is such a failure. The state of this process is then
// intact.
bool IsTaskFailure(const absl::Status& status);

}  // namespace dapd
