// The signals that ask a process to stop, and their count for a command that
// has processes of its own to end, so that it can tell them first. A service
// waits for them instead (common/rpc/server/shutdown_signal.h).
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace dapd {

// SIGINT, SIGTERM and, of a terminal that is closed, SIGHUP: not where this
// process was started to outlive its terminal (nohup).
std::vector<int> StopSignals();

// What comes so soon after a signal that counted is the same request, which
// arrives more than once: a service manager and `timeout` tell a process that
// its parent tells too, a shell that the kernel told, and the kernel tells of
// a parent's death once for each of its threads. A second request would end a
// run in the middle of its last checkpoint.
inline constexpr absl::Duration kSameRequest = absl::Milliseconds(500);

// From here on no such signal ends this process; the requests are counted.
// SIGPIPE is ignored: what a command does goes on behind whoever reads its log.
// For the whole process.
void CatchStopRequests();

// How many have come. Any thread may ask.
int StopRequests();

}  // namespace dapd
