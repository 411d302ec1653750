// Lists folders. A range-for over the iterators of std::filesystem throws in
// the middle, and takes an error at the beginning for an empty folder.
#pragma once

#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Call it after an examination of `path` that failed with `error`. Returns an
// error, exit code kData, if `path` lies in a folder that this user may not
// enter, since then nobody knows whether it exists.
absl::Status CheckMayLookFor(const std::string& path,
                             const std::error_code& error);

// Returns the names of the files and folders in `folder`, sorted. Returns
// NOT_FOUND if the folder is missing; another error if not all names can be
// read.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

// Returns the paths, relative to `folder`, of the regular files in it and below
// it, sorted. Links to files count; links to folders are not followed. Errors
// of ListFolder.
absl::StatusOr<std::vector<std::string>> ListFilesBelow(
    const std::string& folder);

}  // namespace dapd
