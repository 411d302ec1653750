#include "common/base/last_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/files.h"

namespace dapd {

absl::StatusOr<std::string> ReadLastLine(const std::string& path,
                                         uint64_t max_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", path, errno);
  const absl::Cleanup close_file = [descriptor] { ::close(descriptor); };
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  if (size < 0) return FileError("read", path, errno);
  std::string text(std::min(static_cast<uint64_t>(size), max_bytes), '\0');
  const off_t begin = size - static_cast<off_t>(text.size());
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::pread(descriptor,
                                  text.data() + done,
                                  text.size() - done,
                                  begin + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path, errno);
    if (count == 0) break;  // it was cut meanwhile
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  const size_t end = text.rfind('\n');
  const bool is_all = begin == 0;
  if (end == std::string::npos && is_all) return "";
  const size_t before = end == std::string::npos || end == 0
                            ? std::string::npos
                            : text.rfind('\n', end - 1);
  if (end == std::string::npos || (before == std::string::npos && !is_all)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has a last line of more than ", max_bytes, " bytes"));
  }
  const size_t first = before == std::string::npos ? 0 : before + 1;
  return text.substr(first, end - first);
}

}  // namespace dapd
