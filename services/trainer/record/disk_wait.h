// DiskWait: tells other processes that a run waits for its disk
// (full_disk_rule.h). A disk that refuses every write takes no note either, so
// the trainer holds a lock on the run's config.yaml, which ends with the
// trainer.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Holds the lock while it lives. If the lock cannot be taken, the run waits
// unnoticed.
class DiskWait {
 public:
  explicit DiskWait(const std::string& run_folder);
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;
  ~DiskWait();

 private:
  int file_ = -1;
};

// Returns whether the run in this folder waits for its disk. Returns the errors
// of IsLocked (common/base/file_lock.h).
absl::StatusOr<bool> WaitsForDisk(const std::string& run_folder);

}  // namespace dapd
