#include "common/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/aside.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kFileErrorUrl[] = "dapd/file_error";

constexpr size_t kBufferBytes = 1 << 20;

absl::Status NoPath(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the path of ", what, " to write is empty"));
}

// Returns whether `path` is written into and never replaced: a device, a pipe,
// or a standard stream of this process, whatever is behind it.
bool IsStream(const std::string& path, const struct stat& info) {
  for (const absl::string_view streams :
       {"/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/"}) {
    if (absl::StartsWith(path, streams)) return true;
  }
  return !S_ISREG(info.st_mode);
}

// In a container this process may have the number of the process before it.
bool IsGone(pid_t process) {
  return process > 0 &&
         (process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH));
}

absl::Status StatusOfError(absl::string_view verb,
                           const std::string& path,
                           int error) {
  const std::string message =
      absl::StrCat("cannot ", verb, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, "; ", HowToFindRoom(path)));
    case EFBIG:
      return absl::ResourceExhaustedError(
          absl::StrCat(message,
                       "; larger than this process may make files (ulimit -f; "
                       "prlimit --fsize=unlimited --pid ",
                       ::getpid(),
                       " raises that), or than the file system takes"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(message,
                       "; user ",
                       ::geteuid(),
                       " lacks the permission: grant it with chown or chmod, "
                       "on the folders above as well"));
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EMFILE:
      return absl::ResourceExhaustedError(absl::StrCat(
          message,
          "; this process may have no more files open: raise ulimit -n"));
    case ENFILE:
      return absl::ResourceExhaustedError(absl::StrCat(
          message,
          "; all processes of this machine together have too many: raise "
          "fs.file-max"));
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
      return absl::InvalidArgumentError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

bool IsLfsPointer(absl::string_view bytes) {
  constexpr absl::string_view kBegin =
      "version https://git-lfs.github.com/spec/";
  constexpr size_t kFewest = 8;
  return bytes.size() >= kFewest &&
         absl::StartsWith(bytes, kBegin.substr(0, bytes.size()));
}

std::string HowToFindRoom(const std::string& path) {
  struct statvfs system = {};
  std::string nearest = path;
  while (::statvfs(nearest.c_str(), &system) != 0) {
    const std::string parent = std::filesystem::path(nearest).parent_path();
    if (errno != ENOENT || parent == nearest || parent.empty()) break;
    nearest = parent;
  }
  // Some file systems do not count inodes and report that they have none.
  if (system.f_files > 0 && system.f_favail == 0) {
    return absl::StrCat(
        "its file system has space, but no inodes left, of which each file and "
        "folder takes one (df -i; it has ",
        system.f_files,
        "): remove files, or choose another folder");
  }
  return "free some space, or choose another folder";
}

absl::Status FileError(absl::string_view verb,
                       const std::string& path,
                       int error) {
  absl::Status status = StatusOfError(verb, path, error);
  status.SetPayload(kFileErrorUrl, absl::Cord());
  return status;
}

bool IsFileError(const absl::Status& status) {
  return status.GetPayload(kFileErrorUrl).has_value();
}

absl::Status WriteAll(int descriptor,
                      const std::string& path,
                      absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", path, errno);
  const absl::Cleanup close_file = [descriptor] { ::close(descriptor); };
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) return FileError("stat", path, errno);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a folder; a file was expected"));
  }
  if (static_cast<uint64_t>(info.st_size) > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path,
                                                   " has ",
                                                   info.st_size,
                                                   " bytes, at most ",
                                                   max_bytes,
                                                   " are accepted"));
  }
  std::string bytes;
  bytes.reserve(static_cast<size_t>(info.st_size));
  std::string block(kFileBlockBytes, '\0');
  while (true) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path, errno);
    }
    if (count == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(count) > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is longer than ", max_bytes, " bytes"));
    }
    bytes.append(block.data(), static_cast<size_t>(count));
  }
}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Open(
    const std::string& path) {
  if (path.empty()) return NoPath("a file");
  // The error comes before the caller computes anything, not from the rename at
  // the end.
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is a folder; a file was expected"));
    }
    if (IsStream(path, info)) {
      const int stream =
          ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
      if (stream < 0) return FileError("open", path, errno);
      return AtomicFileWriter(path, "", stream);
    }
  }
  std::string temporary = AsideOf(path);
  const int descriptor = CreateAsideFile(temporary);
  if (descriptor < 0) return FileError("create", temporary, errno);
  return AtomicFileWriter(path, std::move(temporary), descriptor);
}

absl::Status CheckWritable(const std::string& path) {
  struct stat info = {};
  // Opening a pipe would tell its reader, at the close, that the file has
  // ended.
  if (::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode) &&
      IsStream(path, info)) {
    return absl::OkStatus();
  }
  return AtomicFileWriter::Open(path).status();
}

AtomicFileWriter::AtomicFileWriter(std::string path,
                                   std::string temporary,
                                   int descriptor)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      buffer_(std::move(other.buffer_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) RemoveAside(temporary_);
}

absl::Status AtomicFileWriter::Append(absl::string_view bytes) {
  if (buffer_.size() + bytes.size() < kBufferBytes) {
    buffer_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  const std::string& written = temporary_.empty() ? path_ : temporary_;
  RETURN_IF_ERROR(WriteAll(descriptor_, written, buffer_));
  buffer_.clear();
  return WriteAll(descriptor_, written, bytes);
}

absl::Status AtomicFileWriter::Commit() {
  if (temporary_.empty()) {
    RETURN_IF_ERROR(WriteAll(descriptor_, path_, buffer_));
    ::close(std::exchange(descriptor_, -1));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(DAPD_FAILPOINT_STATUS("file.before_write"));
  RETURN_IF_ERROR(WriteAll(descriptor_, temporary_, buffer_));
  DAPD_FAILPOINT("file.before_sync");
  RETURN_IF_ERROR(DAPD_FAILPOINT_STATUS("file.sync"));
  if (::fsync(descriptor_) != 0) return FileError("sync", temporary_, errno);
  DAPD_FAILPOINT("file.before_rename");
  RETURN_IF_ERROR(RenameAside(temporary_, path_));
  DAPD_FAILPOINT("file.after_rename");
  ::close(std::exchange(descriptor_, -1));
  const std::string parent = std::filesystem::path(path_).parent_path();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes) {
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Open(path));
  RETURN_IF_ERROR(writer.Append(bytes));
  return writer.Commit();
}

void RemoveTemporaries(const std::string& folder) {
  namespace fs = std::filesystem;
  const auto names = ListFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const fs::path path = JoinPath(folder, name);
    const size_t mark = name.rfind(kAsideMark);
    pid_t process = 0;
    if (mark == std::string::npos ||
        !absl::SimpleAtoi(name.substr(mark + std::strlen(kAsideMark)),
                          &process) ||
        !IsGone(process)) {
      continue;
    }
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    if (type == fs::file_type::regular || type == fs::file_type::directory) {
      RemoveAside(path);
    }
  }
}

absl::Status SyncDirectory(const std::string& folder) {
  const int descriptor =
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", folder, errno);
  const absl::Cleanup close_folder = [descriptor] { ::close(descriptor); };
  if (::fsync(descriptor) != 0) return FileError("sync", folder, errno);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& folder) {
  if (folder.empty()) return NoPath("a folder");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError("create folder", folder, error.value());
  return absl::OkStatus();
}

absl::Status CheckNewOutput(const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(output, error)) ||
      (fs::is_directory(output, error) && fs::is_empty(output, error))) {
    return absl::OkStatus();
  }
  return WithExitCode(
      absl::AlreadyExistsError(absl::StrCat(
          output, " already exists; choose another --output, or remove it")),
      ExitCode::kUsage);
}

absl::Status CheckOutputSpares(const std::string& input,
                               const std::string& output) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(output, error) ||
      !fs::equivalent(input, output, error)) {
    return absl::OkStatus();
  }
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          output,
          " is read, and would be written over; choose another --output")),
      ExitCode::kUsage);
}

bool FileExists(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0 || errno == EACCES;
}

std::string JoinPath(absl::string_view folder, absl::string_view name) {
  if (folder.empty()) return std::string(name);
  return absl::StrCat(folder, folder.back() == '/' ? "" : "/", name);
}

}  // namespace dapd
