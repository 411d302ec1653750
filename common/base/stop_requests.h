// SIGINT and SIGTERM to a command that has processes of its own to end:
// counted, so that it can tell them first. A service waits for them instead
// (common/rpc/server/shutdown_signal.h).
#pragma once

namespace dapd {

// From here on neither ends this process; both are counted. SIGPIPE is ignored:
// what a command does goes on behind whoever reads its log. For the whole
// process.
void CatchStopRequests();

// How many of them have come. Any thread may ask.
int StopRequests();

}  // namespace dapd
