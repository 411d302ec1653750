#include "common/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/aside.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr int kAttempts = 5;
constexpr absl::Duration kPause = absl::Milliseconds(20);

// Returns zero, or the errno of a lock that cannot be taken; EWOULDBLOCK means
// that another descriptor holds it.
int LockError(int descriptor, int kind) {
  while (::flock(descriptor, kind | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

absl::Status CannotLock(const std::string& path, int error) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          "cannot lock ",
          path,
          ": ",
          std::strerror(error),
          "; this file system cannot lock files, so two processes could write "
          "there at once: choose a folder on another file system, or have this "
          "one mounted with locks (NFS needs its lock service, or the mount "
          "option local_lock=flock where one machine alone writes)")),
      ExitCode::kConfig);
}

}  // namespace

absl::StatusOr<bool> TryLock(int descriptor, const std::string& path) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kPause);
    const int error = LockError(descriptor, LOCK_EX);
    if (error == 0) return true;
    if (error != EWOULDBLOCK) return CannotLock(path, error);
  }
  return false;
}

absl::StatusOr<bool> IsLocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return false;
  if (descriptor < 0) return FileError("open", path, errno);
  const absl::Cleanup close_file = [descriptor] { ::close(descriptor); };
  const int error = LockError(descriptor, LOCK_SH);
  if (error == 0) return false;
  if (error == EWOULDBLOCK) return true;
  return CannotLock(path, error);
}

absl::Status CheckLocks(const std::string& folder) {
  const std::string path = AsideOf(JoinPath(folder, ".lock"));
  const int descriptor = CreateAsideFile(path);
  if (descriptor < 0) return FileError("create", path, errno);
  const absl::Cleanup remove_file = [&] {
    ::close(descriptor);
    RemoveAside(path);
  };
  return TryLock(descriptor, path).status();
}

}  // namespace dapd
