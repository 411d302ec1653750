// manifest.json: size and SHA-256 of every file of a checkpoint, by its path in
// the folder. It is written last, so the files that it lists are complete.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace dapd {

// Describes the files that are in `folder` now.
absl::Status WriteManifest(const std::string& folder);

// Returns OK if `folder` holds exactly the files of its manifest, byte for
// byte, and the manifest itself equals WriteManifest's. DATA_LOSS names the
// difference; an error of another code says why the files cannot be read.
absl::Status VerifyManifest(const std::string& folder);

}  // namespace dapd
