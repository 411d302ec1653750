// Waits for memory of a GPU that is large enough but has too little of it free:
// another process holds the rest, and may be about to end.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace dapd {

// Calls `check` (CheckShares, CheckOwnGpu) until it returns anything but
// RESOURCE_EXHAUSTED, at most for `patience` (run.gpu_wait_seconds), and logs
// why it waits. `wait_for_stop` blocks for at most the given time and returns
// true once the process must stop. Returns the last status of `check`, with the
// time waited, or CANCELLED after a stop.
absl::Status AwaitGpuMemory(
    const std::function<absl::Status()>& check,
    absl::Duration patience,
    const std::function<bool(absl::Duration)>& wait_for_stop);

}  // namespace dapd
