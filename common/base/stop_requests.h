// Counts the signals that ask a process to stop, for a command that first has
// to tell its own processes to end. A service waits for these signals instead
// (common/rpc/server/shutdown_signal.h).
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace dapd {

// Returns SIGINT, SIGTERM and SIGHUP (a closed terminal), but not SIGHUP if
// this process was started to outlive its terminal (nohup).
std::vector<int> StopSignals();

// Signals within this time after a counted signal belong to the same request,
// which often arrives more than once: a service manager, `timeout` and a shell
// signal a process that its parent or the kernel signals too, and the kernel
// signals the death of a parent once for each of its threads. A second request
// would end a run in the middle of its last checkpoint.
inline constexpr absl::Duration kSameRequest = absl::Milliseconds(500);

// From now on no such signal ends this process; the requests are counted.
// SIGPIPE is ignored, so that a command continues when the reader of its log
// ends. This applies to the whole process.
void CatchStopRequests();

// Returns the number of requests so far. Thread-safe.
int StopRequests();

}  // namespace dapd
