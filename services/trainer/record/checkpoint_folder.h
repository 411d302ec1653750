// Lists and removes the checkpoints in a run's folder of checkpoints.
//
//   step-000050/          a whole checkpoint
//   step-000050.tmp-PID/  a checkpoint that is being written or removed
//   step-000050.damaged/  a damaged checkpoint
// (common/base/aside.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Returns "step-000050".
std::string CheckpointName(int64_t step);

struct Checkpoints {
  std::vector<std::string> complete;  // paths, oldest first
  std::vector<std::string> damaged;   // those that were set aside
};
// Returns none if there is no such folder, and an error if it cannot be listed.
absl::StatusOr<Checkpoints> ListCheckpoints(const std::string& folder);

// Removes the checkpoints that a crash left half written or half removed, also
// "step-000050.tmp", the name in earlier versions. The caller holds the run's
// folder, so no other process writes there.
void RemoveHalfCheckpoints(const std::string& folder);
// Removes all but the newest `keep` checkpoints (0: removes none). A checkpoint
// that cannot be removed stays.
void RemoveOldestCheckpoints(const std::string& folder, int64_t keep);

}  // namespace dapd
