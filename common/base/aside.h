// What is written beside the place that it gets once it is whole: files and
// folders "<target>.tmp-<pid>". Who makes one renames it or removes it; this
// file knows those that are neither yet, so that a command which a signal ends
// leaves none behind. Thread-safe. AtomicFileWriter (files.h) does all that for
// a file.
#pragma once

#include <string>

#include "absl/status/status.h"

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

// It becomes `target`, in one step.
absl::Status RenameAside(const std::string& aside, const std::string& target);

// With all that is below it.
void RemoveAside(const std::string& aside);

// From here on a signal that asks this process to stop (stop_requests.h) ends
// it as before, but first removes what stands aside: nothing becomes a target
// any more once that has begun. A signal that was ignored or has a handler is
// left alone, and who counts the requests (CatchStopRequests) ends by itself.
// For a program that does not end in good order by other means; once, at its
// beginning.
void RemoveAsidesWhenStopped();

}  // namespace dapd
