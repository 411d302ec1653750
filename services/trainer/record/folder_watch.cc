#include "services/trainer/record/folder_watch.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"

namespace dapd {

FolderWatch::FolderWatch(std::string folder) : folder_(std::move(folder)) {
  struct stat info = {};
  if (::stat(folder_.c_str(), &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

absl::Status FolderWatch::Check() const {
  if (inode_ == 0) return absl::OkStatus();
  struct stat info = {};
  if (::stat(folder_.c_str(), &info) == 0) {
    const bool is_other = info.st_dev == device_ && info.st_ino != inode_;
    return is_other ? FolderIsGone(folder_) : absl::OkStatus();
  }
  if (errno != ENOENT && errno != ENOTDIR) return absl::OkStatus();
  // Looks at the nearest existing folder above: if it is on the same file
  // system, the run's folder was removed; otherwise the file system is gone.
  std::filesystem::path above = folder_;
  while (above.has_parent_path() && above != above.parent_path()) {
    above = above.parent_path();
    if (::stat(above.c_str(), &info) != 0) continue;
    return info.st_dev == device_ ? FolderIsGone(folder_) : absl::OkStatus();
  }
  if (::stat(".", &info) == 0 && info.st_dev == device_) {
    return FolderIsGone(folder_);
  }
  return absl::OkStatus();
}

absl::Status FolderIsGone(const std::string& folder) {
  return WithExitCode(
      absl::DataLossError(absl::StrCat(
          "the run's folder ",
          folder,
          " was removed or renamed while the run was under way, and what the "
          "run recorded went with it; put the folder back, or restore the run "
          "from its copy (dapd restore), and the same command resumes it; "
          "without either it begins anew")),
      ExitCode::kRunLost);
}

}  // namespace dapd
