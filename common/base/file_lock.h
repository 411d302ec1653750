// File locks (flock) by which processes know of each other. They end with the
// process and need no space on the disk.
//
// A file system that cannot lock (a network file system without its lock
// service, some FUSE mounts) gives an error of its own, FAILED_PRECONDITION
// with exit code kConfig, which is never confused with a lock that another
// process holds: a program that waits for such a lock would wait for ever. The
// message says what to do.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Locks an open file for this process alone, until the descriptor is closed.
// Returns false if another process holds the lock. IsLocked in another process
// holds it for an instant, for which this call waits. The file must be open for
// writing, since NFS requires that for an exclusive lock. `path` is for
// messages.
absl::StatusOr<bool> TryLock(int descriptor, const std::string& path);

// Returns whether a process holds the lock of the file, on this machine or, if
// the file system locks across machines, on another machine; false for a
// missing file. Returns an error if it cannot be determined.
absl::StatusOr<bool> IsLocked(const std::string& path);

// Checks that a file in `folder` can be written and locked: creates a file with
// the name that AtomicFileWriter would use, and removes it. Returns the errors
// of files.h and TryLock.
absl::Status CheckLocks(const std::string& folder);

}  // namespace dapd
