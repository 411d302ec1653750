// What a folder holds. Not a range-for over std::filesystem's iterators, which
// throws half way, and whose error at the beginning looks like an empty folder.
#pragma once

#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// After a look for `path` that met `error`: an error, exit code kData, where it
// is behind a folder that this user may not enter. It may be there or not.
absl::Status CheckMayLookFor(const std::string& path,
                             const std::error_code& error);

// The names in `folder`, of files and folders, in order. NOT_FOUND without it;
// another error if not all of them can be seen.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder);

// The regular files in `folder` and below it, by their paths from there, in
// order; links to files count, links to folders are not followed. Errors as
// ListFolder.
absl::StatusOr<std::vector<std::string>> ListFilesBelow(
    const std::string& folder);

}  // namespace dapd
