// Files and folders that are written beside their place, as
// "<target>.tmp-<pid>", and renamed once they are whole; and those that leave
// their place in one step before they are removed, or because they are damaged.
// The caller that creates one renames it or removes it. This file knows those
// that are neither renamed nor removed yet, so that a command that a signal
// ends leaves none behind. Thread-safe. For a single file, AtomicFileWriter
// (files.h) does all of this.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Between a target and the number of the process that writes it.
inline constexpr char kAsideMark[] = ".tmp-";

// This process's name for what becomes `target`.
std::string AsideOf(const std::string& target);

// An empty file or folder of that name that is this process's own: others may
// know the name beforehand, and what they put there, such as a link to
// somewhere else, is removed and not written into, as is what an earlier
// process of the same number left; but no folder is for a file. The file's
// descriptor, or -1 with errno; the folder with those above it.
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

// From here on a signal that asks this process to stop (stop_requests.h) ends
// it as before, but first removes what stands aside: nothing becomes a target
// any more once that has begun. A signal that was ignored or has a handler is
// left alone, and who counts the requests (CatchStopRequests) ends by itself.
// For a program that does not end in good order by other means; once, at its
// beginning.
void RemoveAsidesWhenStopped();

}  // namespace dapd
