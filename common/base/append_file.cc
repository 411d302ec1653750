#include "common/base/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace dapd {

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError("create", path, errno);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    const absl::Status error = FileError("stat", path, errno);
    ::close(descriptor);
    return error;
  }
  return AppendFile(path, descriptor, static_cast<uint64_t>(info.st_size));
}

AppendFile::AppendFile(std::string path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      torn_(other.torn_) {}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status AppendFile::Append(absl::string_view record) {
  return Add(record, /*synced=*/true);
}

absl::Status AppendFile::AppendUnsynced(absl::string_view record) {
  return Add(record, /*synced=*/false);
}

absl::Status AppendFile::Add(absl::string_view record, bool synced) {
  if (torn_) RETURN_IF_ERROR(Truncate(size_));
  torn_ = true;
  absl::Cleanup cut = [this] { Truncate(size_).IgnoreError(); };
  if (synced) RETURN_IF_ERROR(DAPD_FAILPOINT_STATUS("append.before_write"));
  RETURN_IF_ERROR(WriteAll(descriptor_, path_, record));
  if (synced) RETURN_IF_ERROR(Sync());
  std::move(cut).Cancel();
  size_ += record.size();
  torn_ = false;
  return absl::OkStatus();
}

absl::Status AppendFile::Sync() {
  DAPD_FAILPOINT("append.before_sync");
  if (::fdatasync(descriptor_) != 0) return FileError("sync", path_, errno);
  DAPD_FAILPOINT("append.after_sync");
  return absl::OkStatus();
}

absl::Status AppendFile::Truncate(uint64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    return FileError("shorten", path_, errno);
  }
  size_ = size;
  torn_ = false;
  return absl::OkStatus();
}

}  // namespace dapd
