// The end of a process that cannot go on, but would if it were started again.
#pragma once

#include "absl/status/status.h"

namespace dapd {

// Logs `why` and ends at once with ExitCode::kRestart: whoever watches this
// process (`dapd run`, Kubernetes, systemd) starts it again. Not in an orderly
// way: destructors would wait for the device.
[[noreturn]] void EndForRestart(const absl::Status& why);

// The same, by SIGALRM and with a line of plain text, if the process is still
// there after so many seconds: where its end has to ask a device that may
// answer nobody. Not taken back.
void EndForRestartAfter(unsigned seconds);

}  // namespace dapd
