// The folder that a run's checkpoints stand in: which there are, and how they
// come and go.
//
//   step-000050/          a whole one
//   step-000050.tmp-PID/  one that is being written or removed
//   step-000050.damaged/  one that was found damaged
// (common/base/aside.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// "step-000050".
std::string CheckpointName(int64_t step);

struct Checkpoints {
  std::vector<std::string> complete;  // paths, oldest first
  std::vector<std::string> damaged;   // those that were set aside
};
// None where there is no such folder; an error where it cannot be listed.
absl::StatusOr<Checkpoints> ListCheckpoints(const std::string& folder);

// Removes the checkpoints that a crash left half written or half removed, also
// "step-000050.tmp", as earlier versions named them. The caller holds the run's
// folder, so no other process writes there.
void RemoveHalfCheckpoints(const std::string& folder);
// Removes all but the newest `keep` checkpoints (0: none is removed). One that
// cannot be removed stays.
void RemoveOldestCheckpoints(const std::string& folder, int64_t keep);

}  // namespace dapd
