// Ends a process that cannot continue but would work again after a restart.
#pragma once

#include "absl/status/status.h"

namespace dapd {

// Logs `why` and ends the process at once with ExitCode::kRestart, so that its
// supervisor (`dapd run`, Kubernetes, systemd) starts it again. Destructors do
// not run, since they would wait for the device.
[[noreturn]] void EndForRestart(const absl::Status& why);

// Ends the process with ExitCode::kRestart and a line of plain text, by
// SIGALRM, if it still runs after `seconds`. It is for an orderly end that has
// to ask a device which may never answer. It cannot be cancelled.
void EndForRestartAfter(unsigned seconds);

}  // namespace dapd
