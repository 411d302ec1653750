// DiskWait: that a run waits for its disk (full_disk_rule.h), for whoever looks
// at its folder. A disk that refuses every write takes no note of it either;
// what a trainer holds instead is the lock of the run's config.yaml, which ends
// with the trainer.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Says so for as long as it lives. Where the lock cannot be had nobody is told,
// and the run waits all the same.
class DiskWait {
 public:
  explicit DiskWait(const std::string& run_folder);
  DiskWait(const DiskWait&) = delete;
  DiskWait& operator=(const DiskWait&) = delete;
  ~DiskWait();

 private:
  int file_ = -1;
};

// Errors as IsLocked (common/base/file_lock.h).
absl::StatusOr<bool> WaitsForDisk(const std::string& run_folder);

}  // namespace dapd
