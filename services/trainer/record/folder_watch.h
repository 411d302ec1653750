// FolderWatch checks whether a run's folder is still the folder that the run
// began with. If a folder is removed under a run, writes to its open files
// still succeed, but are lost.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace dapd {

// Thread-safe.
class FolderWatch {
 public:
  // `folder` must exist.
  explicit FolderWatch(std::string folder);

  // Returns DATA_LOSS (exit code kRunLost) once the folder was removed, renamed
  // or replaced. Returns OK while the folder is only out of sight, because its
  // file system is not mounted or does not answer.
  absl::Status Check() const;

 private:
  const std::string folder_;
  dev_t device_ = 0;
  ino_t inode_ = 0;  // 0: unknown
};

// Returns the error that Check returns for `folder`.
absl::Status FolderIsGone(const std::string& folder);

}  // namespace dapd
