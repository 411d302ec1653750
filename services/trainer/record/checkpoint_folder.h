// The folder that a run's checkpoints stand in: which there are, and how they
// come and go.
//
//   step-000050/          a whole one
//   step-000050.tmp/      one that is being written or removed
//   step-000050.damaged/  one that was found damaged, for whoever wants to know
//                         why
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

// Behind the name of one that is not whole.
inline constexpr char kCheckpointAside[] = ".tmp";

// "step-000050".
std::string CheckpointName(int64_t step);

struct Checkpoints {
  std::vector<std::string> complete;  // paths, oldest first
  std::vector<std::string> damaged;   // those that were set aside
};
// None where there is no such folder; an error where it cannot be listed.
absl::StatusOr<Checkpoints> ListCheckpoints(const std::string& folder);

absl::Status RenameCheckpoint(const std::string& from, const std::string& to);
// Gives a checkpoint the name of a damaged one.
absl::Status SetAsideDamaged(const std::string& checkpoint);

// What a crash left while a checkpoint was written or removed. One trainer at a
// time has the folder.
void RemoveHalfCheckpoints(const std::string& folder);
// So that the newest `keep` stay (0: all). What cannot be removed stays.
void RemoveOldestCheckpoints(const std::string& folder, int64_t keep);

}  // namespace dapd
