#include "common/base/work_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/base/log.h"

namespace dapd {
namespace {

constexpr char kVariable[] = "DAPD_WORK_MARK";
constexpr uint64_t kMaxMarkBytes = 64;

// Writes in place and always the same number of bytes, so that it works on a
// full disk, too.
absl::Status Write(const std::string& path, int64_t number) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return FileError("open", path, errno);
  const absl::Cleanup close_file = [file] { ::close(file); };
  return WriteAll(file, path, absl::StrFormat("%20d\n", number));
}

// A failure is only logged, since the work itself is done.
void Raise(const std::string& path, int64_t number) {
  if (number <= ReadWorkMark(path)) return;
  if (const absl::Status written = Write(path, number); !written.ok()) {
    LogWarning(absl::StrCat(
        "whoever starts this program again is not told that it has worked: ",
        std::string(written.message())));
  }
}

}  // namespace

std::string WorkMarkSetting(const std::string& path) {
  return absl::StrCat(kVariable, "=", path);
}

int64_t ReadWorkMark(const std::string& path) {
  const auto text = ReadFile(path, kMaxMarkBytes);
  int64_t number = 0;
  return text.ok() && absl::SimpleAtoi(*text, &number) ? number : 0;
}

void MarkServed() {
  static std::atomic<bool> is_marked = false;
  if (is_marked.exchange(true)) return;
  if (const char* path = std::getenv(kVariable); path != nullptr) {
    Raise(path, ReadWorkMark(path) + 1);
  }
}

void MarkStep(int64_t step) {
  if (const char* path = std::getenv(kVariable); path != nullptr) {
    Raise(path, step);
  }
}

}  // namespace dapd
