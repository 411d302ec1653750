// Locks on files (flock) that processes tell each other of by holding them:
// they end with the process, and need no space on the disk.
//
// A file system that cannot lock (a network file system whose lock service does
// not run, some FUSE mounts) is an error of its own, FAILED_PRECONDITION with
// exit code kConfig, and never taken for a lock that another process holds:
// whoever waits for that would wait for ever. The message says what to do.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Takes the lock of an open file for this process alone, until the descriptor
// is closed. False if another process has it; one that looks (IsLocked) has it
// for an instant, for which this waits. The file must be open for writing: NFS
// locks no other for one process alone. `path` is for messages.
absl::StatusOr<bool> TryLock(int descriptor, const std::string& path);

// Whether a process has the lock of the file, on this machine or, as far as its
// file system locks across machines, on another; no process has that of a file
// that is not there. An error if that cannot be found out.
absl::StatusOr<bool> IsLocked(const std::string& path);

// Whether a file in `folder` can be written and locked: makes one, of no other
// name than AtomicFileWriter would, and removes it. Errors as files.h and
// TryLock have them.
absl::Status CheckLocks(const std::string& folder);

}  // namespace dapd
