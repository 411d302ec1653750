#include "common/base/aside.h"

#include <fcntl.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/stop_requests.h"

namespace dapd {
namespace {

// Creating, renaming and removing happen under the lock. The thread that ends
// the process takes the lock and keeps it, and then sees every path.
struct Asides {
  Mutex mutex;
  std::set<std::string> paths ABSL_GUARDED_BY(mutex);
};

Asides& All() {
  static auto* const asides = new Asides;  // outlives every thread
  return *asides;
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return FileError(absl::StrCat("rename ", from, " to"), to, errno);
}

static_assert(std::atomic<int>::is_always_lock_free, "a handler must not wait");

std::atomic<int> stop_signal = 0;
sem_t stopped;

// A signal handler may call few functions, so a thread does the rest.
void Wake(int signal_number) {
  const int error = errno;
  stop_signal = signal_number;
  ::sem_post(&stopped);
  errno = error;
}

[[noreturn]] void EndWhenStopped() {
  while (::sem_wait(&stopped) != 0) {
  }
  Asides& asides = All();
  const MutexLock for_good(&asides.mutex);
  for (const std::string& path : asides.paths) RemoveTree(path);
  // The parent process learns which signal ended this process.
  const int signal_number = stop_signal;
  ::signal(signal_number, SIG_DFL);
  ::kill(::getpid(), signal_number);
  ::_exit(128 + signal_number);
}

}  // namespace

std::string AsideOf(const std::string& target) {
  return absl::StrCat(target, kAsideMark, ::getpid());
}

int CreateAsideFile(const std::string& aside) {
  Asides& asides = All();
  const MutexLock lock(&asides.mutex);
  ::unlink(aside.c_str());
  const int descriptor =
      ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor >= 0) asides.paths.insert(aside);
  return descriptor;
}

absl::Status CreateAsideFolder(const std::string& aside) {
  Asides& asides = All();
  const MutexLock lock(&asides.mutex);
  RemoveTree(aside);
  const absl::Status made = MakeDirectories(aside);
  if (made.ok()) asides.paths.insert(aside);
  return made;
}

absl::Status RenameAside(const std::string& aside, const std::string& target) {
  Asides& asides = All();
  const MutexLock lock(&asides.mutex);
  RETURN_IF_ERROR(Rename(aside, target));
  asides.paths.erase(aside);
  return absl::OkStatus();
}

absl::StatusOr<std::string> MoveAside(const std::string& target) {
  Asides& asides = All();
  const MutexLock lock(&asides.mutex);
  std::string aside = AsideOf(target);
  RemoveTree(aside);
  RETURN_IF_ERROR(Rename(target, aside));
  asides.paths.insert(aside);
  return aside;
}

absl::StatusOr<std::string> SetAsideDamaged(const std::string& path) {
  std::string damaged = absl::StrCat(path, kDamagedMark);
  RemoveTree(damaged);
  RETURN_IF_ERROR(Rename(path, damaged));
  return damaged;
}

void RemoveAside(const std::string& aside) {
  Asides& asides = All();
  const MutexLock lock(&asides.mutex);
  RemoveTree(aside);
  asides.paths.erase(aside);
}

void RemoveAsidesWhenStopped() {
  ::sem_init(&stopped, 0, 0);
  for (const int signal_number : StopSignals()) {
    struct sigaction present = {};
    ::sigaction(signal_number, nullptr, &present);
    if (present.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = Wake;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal_number, &action, nullptr);
  }
  std::thread(EndWhenStopped).detach();
}

}  // namespace dapd
