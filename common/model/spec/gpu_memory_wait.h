// A process that finds too little of a GPU's memory free, though the GPU has
// enough of it, waits: another process holds the rest, and may be about to end.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace dapd {

// Calls `check` (CheckShares, CheckOwnGpu) until it returns something else than
// RESOURCE_EXHAUSTED, at most for `patience` (run.gpu_wait_seconds); the log
// says what is awaited. `wait_for_stop` blocks for at most the given time; true
// once the process is to stop. Returns what `check` returned last, with how
// long was waited, or CANCELLED after a stop.
absl::Status AwaitGpuMemory(
    const std::function<absl::Status()>& check,
    absl::Duration patience,
    const std::function<bool(absl::Duration)>& wait_for_stop);

}  // namespace dapd
