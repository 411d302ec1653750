#include "services/trainer/record/disk_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/base/file_lock.h"
#include "common/base/files.h"

namespace dapd {
namespace {

std::string MarkPathIn(const std::string& run_folder) {
  return JoinPath(run_folder, "config.yaml");
}

// NFS grants an exclusive lock only on a file that is open for writing, which a
// disk that has become read-only refuses.
int Open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return file >= 0 ? file : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

DiskWait::DiskWait(const std::string& run_folder)
    : file_(Open(MarkPathIn(run_folder))) {
  if (file_ >= 0) TryLock(file_, MarkPathIn(run_folder)).IgnoreError();
}

DiskWait::~DiskWait() {
  if (file_ >= 0) ::close(file_);
}

absl::StatusOr<bool> WaitsForDisk(const std::string& run_folder) {
  return IsLocked(MarkPathIn(run_folder));
}

}  // namespace dapd
