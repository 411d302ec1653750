// Locks on files (flock) that processes tell each other of by holding them:
// they end with the process, and need no space on the disk.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Takes the lock of an open file for this process alone, until the descriptor
// is closed. False if another process has it; one that looks (IsLocked) has it
// for an instant, for which this waits.
bool TryLock(int descriptor);

// Whether a process has the lock of the file, on this machine or, as far as its
// file system locks across machines, on another; no process has that of a file
// that is not there. An error if that cannot be found out.
absl::StatusOr<bool> IsLocked(const std::string& path);

}  // namespace dapd
