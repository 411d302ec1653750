// DiskWait: tells other processes that a run waits for its disk
// (full_disk_rule.h). A disk that refuses every write takes no note either, so
// the trainer holds a lock on the run's config.yaml, which ends with the
// trainer.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Holds the lock while it lives. Without the lock nobody is told, and the run
// waits all the same.
class DiskWait {
 public:
  explicit DiskWait(const std::string& run_folder);
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;
  ~DiskWait();

 private:
  int file_ = -1;
};

// Whether the run in this folder waits for its disk. Errors as IsLocked
// (common/base/file_lock.h).
absl::StatusOr<bool> WaitsForDisk(const std::string& run_folder);

}  // namespace dapd
