// Checkpoints: everything the trainable state consists of, in a folder that is
// written aside, synced, read back and compared, then renamed.
//
//   step-000050/adapter/               PEFT, the live adapter
//   step-000050/snapshot/              PEFT; missing while it is the base
//   step-000050/ema/                   PEFT, the moving average; there only
//                                      where a term reads it
//   step-000050/previous/              PEFT, the adapter one step before, which
//                                      samples the open step; there only if
//                                      rollout.max_staleness is 1
//   step-000050/optimizer.safetensors  AdamW's moments
//   step-000050/state.json             the steps of the adapters above and
//                                      RunIdentity
//   step-000050/manifest.json          size and SHA-256 of the files above
//
// The data's cursor and the random numbers need no place of their own: both are
// functions of seed and step. Answers to the step that was open are in the
// ledger (ledger.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/training/policy.h"
#include "services/trainer/record/run_identity.h"

namespace dapd {

// Writes `folder`/step-NNNNNN, unless a valid checkpoint is there, then removes
// the oldest checkpoints so that `keep` stay (0: all). First removes
// checkpoints that a crash left half written or half removed. Returns DATA_LOSS
// if the files read back differently; they are read back on the CPU, even if
// the policy is on a GPU. `card` becomes README.md of its adapter/; empty:
// none.
absl::Status SaveCheckpoint(const std::string& folder,
                            const ModelConfig& model,
                            const Policy& policy,
                            const RunIdentity& identity,
                            int64_t keep,
                            const std::string& card = "");

// Returns the newest checkpoint in `folder` whose files match its manifest;
// nothing if there never was a checkpoint. A damaged checkpoint is renamed to
// step-NNNNNN.damaged, with a warning, and the checkpoint before it is taken. A
// checkpoint that cannot be read (no permission, a failing disk) stays, and its
// error is returned.
//   DATA_LOSS            all checkpoints are damaged, or were at the last load
//   FAILED_PRECONDITION  the newest comes from another base, other data or
//                        another configuration (exit code kConfig); names all
//                        that differs
absl::StatusOr<std::optional<PolicyState>> LoadNewestCheckpoint(
    const std::string& folder,
    const RunIdentity& identity,
    const ModelConfig& model,
    at::Device device);

}  // namespace dapd
