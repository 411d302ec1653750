// What this program was built from.
#pragma once

namespace dapd {

// "0.1.0-12-g4436012-dirty": the release, the commit as `git describe` names
// it, and whether files differed from it. Only the release where neither git
// nor the build's DAPD_COMMIT named one.
const char* Version();

// The second part of it, or "".
const char* Commit();

}  // namespace dapd
