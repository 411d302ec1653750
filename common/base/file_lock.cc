#include "common/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/files.h"

namespace dapd {
namespace {

constexpr int kAttempts = 5;
constexpr absl::Duration kPause = absl::Milliseconds(20);

}  // namespace

bool TryLock(int descriptor) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kPause);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
  }
  return false;
}

absl::StatusOr<bool> IsLocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return false;
  if (descriptor < 0) return FileError("open", path, errno);
  const bool is_free = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0;
  const int error = errno;
  ::close(descriptor);
  if (is_free) return false;
  if (error == EWOULDBLOCK) return true;
  return FileError("check the lock of", path, error);
}

}  // namespace dapd
