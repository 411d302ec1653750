// The version of this program.
#pragma once

namespace dapd {

// Returns "0.1.0-12-g4436012-dirty": the release, the commit in the form of
// `git describe`, and whether files differed from it. Only the release if
// neither git nor DAPD_COMMIT named a commit during the build.
const char* Version();

// Returns the part after the release, or "".
const char* Commit();

}  // namespace dapd
