// Checkpoints: everything the trainable state consists of, in a folder that is
// written aside, synced and renamed, with the digest of every file.
//
//   step-000050/adapter/               PEFT, the live adapter
//   step-000050/snapshot/              PEFT; missing while it is the base
//   step-000050/optimizer.safetensors  AdamW's moments
//   step-000050/state.json             step, snapshot step, seed, digests
//   step-000050/manifest.json          size and SHA-256 of the files above
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "common/training/policy.h"

namespace dapd {

// What a run was started from; a checkpoint belongs to exactly this.
struct RunIdentity {
  std::string base_model_path;
  std::string layout_digest;  // of the base
  std::string data_digest;
  uint64_t seed = 0;
};

// Writes `folder`/step-NNNNNN, then removes the oldest ones so that `keep`
// stay.
absl::Status SaveCheckpoint(const std::string& folder,
                            const Policy& policy,
                            const RunIdentity& identity,
                            int64_t keep);

}  // namespace dapd
