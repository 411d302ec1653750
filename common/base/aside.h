// Files and folders that are written beside their place, as
// "<target>.tmp-<pid>", and renamed once they are whole; and files and folders
// that leave their place in one step before they are removed, or because they
// are damaged. The caller that creates such a file or folder renames or removes
// it. This file knows all that are neither renamed nor removed yet, so that a
// command that a signal ends leaves none behind. Thread-safe. For a single
// file, AtomicFileWriter (files.h) does all of this.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Stands between the name of a target and the number of the process that writes
// it.
inline constexpr char kAsideMark[] = ".tmp-";

// Ends the name of a file or folder that was set aside because it is damaged.
inline constexpr char kDamagedMark[] = ".damaged";

// Returns the name under which this process writes `target`.
std::string AsideOf(const std::string& target);

// Creates an empty file or folder of the name `aside` that belongs to this
// process. Other users may know the name beforehand: whatever they have put
// there, such as a link to another place, is removed and not written into, and
// so are the leftovers of an earlier process of the same number. A folder is
// not removed to make place for a file.
// Returns the descriptor of the file, or -1 with errno. Creates the folders
// above the folder as well.
int CreateAsideFile(const std::string& aside);
absl::Status CreateAsideFolder(const std::string& aside);

// Renames `aside` to `target`, in one step.
absl::Status RenameAside(const std::string& aside, const std::string& target);

// Removes `aside` with everything below it.
void RemoveAside(const std::string& aside);

// Renames `target` to AsideOf(target), which is returned for RemoveAside: so
// half of a folder never has the folder's name while it is removed.
absl::StatusOr<std::string> MoveAside(const std::string& target);

// Renames `path` to "<path>.damaged", where a person can look at it; an older
// one is replaced. Returns the new name.
absl::StatusOr<std::string> SetAsideDamaged(const std::string& path);

// From now on a signal that asks this process to stop (stop_requests.h) still
// ends the process, but first removes all files and folders that stand aside;
// once that has begun, nothing is renamed to its target any more. Signals that
// are ignored or have a handler stay as they are; a program that counts stop
// requests (CatchStopRequests) ends by itself. It is for programs that have no
// orderly end of their own. Call it once, at the beginning of the program.
void RemoveAsidesWhenStopped();

}  // namespace dapd
