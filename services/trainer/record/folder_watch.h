// FolderWatch: whether a run's folder is still the one that the run began with.
// A folder that is removed under a run takes its open files along, into which
// everything can still be written, for nobody.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace dapd {

// Thread-safe.
class FolderWatch {
 public:
  // `folder` is there.
  explicit FolderWatch(std::string folder);

  // DATA_LOSS (exit code kRunLost) once the folder was removed or renamed, or
  // another one is in its place. OK where it is only out of sight: of a file
  // system that is not mounted at the moment, or cannot be asked.
  absl::Status Check() const;

 private:
  const std::string folder_;
  dev_t device_ = 0;
  ino_t inode_ = 0;  // 0: it could not be asked
};

// The error that Check returns for `folder`.
absl::Status FolderIsGone(const std::string& folder);

}  // namespace dapd
