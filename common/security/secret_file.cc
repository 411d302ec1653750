#include "common/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr off_t kMaxBytes = 64 << 10;
constexpr absl::Duration kSecretLookInterval = absl::Seconds(1);

absl::Status SecretError(const std::string& key, const std::string& what) {
  return ConfigError(absl::StrCat(
      key, ": ", what, "; the value is the path of a file, not the secret"));
}

absl::Status CheckMode(const std::string& key, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return SecretError(key, "is not a regular file");
  if (info.st_size > kMaxBytes) {
    return SecretError(key,
                       absl::StrCat("has more than ", kMaxBytes, " bytes"));
  }
  const mode_t mode = info.st_mode & 0777;
  const bool is_own = info.st_uid == ::geteuid();
  if (!is_own && info.st_uid != 0) {
    return SecretError(
        key,
        absl::StrCat("the file belongs to user ",
                     info.st_uid,
                     ", who can change it; it must belong to this user or to "
                     "root"));
  }
  const mode_t allowed = is_own ? 0700 : 0750;
  if ((mode & ~allowed) != 0 || (!is_own && (mode & 0020) != 0)) {
    return SecretError(
        key,
        absl::StrFormat(
            "the file has mode %03o: others can read or change it; chmod 600 "
            "it, and replace the secret if somebody may have done so",
            mode));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& key,
                                           const std::string& path) {
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) {
    return SecretError(
        key, absl::StrCat("cannot open the file: ", std::strerror(errno)));
  }
  const absl::Cleanup close_file = [descriptor] { ::close(descriptor); };
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    return SecretError(
        key, absl::StrCat("cannot stat the file: ", std::strerror(errno)));
  }
  RETURN_IF_ERROR(CheckMode(key, info));
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count =
        ::read(descriptor, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return SecretError(
          key, absl::StrCat("cannot read the file: ", std::strerror(errno)));
    }
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  bytes.resize(size);
  return bytes;
}

std::string FileStamp(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return "";
  return absl::StrCat(info.st_dev,
                      ":",
                      info.st_ino,
                      ":",
                      info.st_size,
                      ":",
                      info.st_mode,
                      ":",
                      info.st_ctim.tv_sec,
                      ".",
                      info.st_ctim.tv_nsec);
}

absl::StatusOr<std::unique_ptr<SecretFile>> SecretFile::Open(
    const std::string& key, const std::string& path) {
  // The stamp is read first, so that a change between the two reads is seen
  // later.
  std::string stamp = FileStamp(path);
  ASSIGN_OR_RETURN(std::string bytes, ReadSecretFile(key, path));
  return std::unique_ptr<SecretFile>(
      new SecretFile(key,
                     path,
                     std::make_shared<const std::string>(std::move(bytes)),
                     std::move(stamp)));
}

SecretFile::SecretFile(std::string key,
                       std::string path,
                       Bytes bytes,
                       std::string stamp)
    : key_(std::move(key)),
      path_(std::move(path)),
      bytes_(std::move(bytes)),
      stamp_(std::move(stamp)),
      looked_(absl::Now()) {}

SecretFile::Bytes SecretFile::Get() {
  MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  if (now >= looked_ && now - looked_ < kSecretLookInterval) return bytes_;
  looked_ = now;
  std::string stamp = FileStamp(path_);
  if (stamp == stamp_) return bytes_;
  auto bytes = ReadSecretFile(key_, path_);
  if (bytes.ok()) {
    stamp_ = std::move(stamp);
    bytes_ = std::make_shared<const std::string>(*std::move(bytes));
    LogInfo(absl::StrCat(key_, ": the file has changed and was read again"));
  } else if (stamp != logged_stamp_) {
    logged_stamp_ = std::move(stamp);
    LogWarning(absl::StrCat(std::string(bytes.status().message()),
                            "; its previous content stays in effect"));
  }
  return bytes_;
}

}  // namespace dapd
