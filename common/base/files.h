// Files: bounded reads, and writes that a crash cannot leave incomplete.
//
// A write goes to a new file "<path>.tmp-<pid>", which is flushed to disk
// (fsync) and renamed to the target; then the folder is synced. A reader sees
// the old file or the new file, never a part. A device, a pipe or /dev/stdout
// is written into and never replaced.
//
// Errors name the path and the reason of the system: RESOURCE_EXHAUSTED for a
// full disk and for a file that may not grow (ulimit -f), NOT_FOUND for a
// missing file, INVALID_ARGUMENT for a folder or another path that cannot be a
// file, and PERMISSION_DENIED, with the number of the user and what to do, if
// this user may not open it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Number of bytes of a large file that are read at a time.
inline constexpr size_t kFileBlockBytes = size_t{1} << 20;

// Returns the whole file. Returns INVALID_ARGUMENT if it is larger than
// `max_bytes`, which is checked before anything is read.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes);

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes);

// Writes files that are too large to hold in memory. Unless Commit() has
// returned OK, the destructor removes the new file. Bytes that went to a device
// or a pipe stay there.
class AtomicFileWriter {
 public:
  static absl::StatusOr<AtomicFileWriter> Open(const std::string& path);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  ~AtomicFileWriter();

  absl::Status Append(absl::string_view bytes);
  // Flushes, syncs, renames. Nothing may be appended afterwards.
  absl::Status Commit();

 private:
  AtomicFileWriter(std::string path, std::string temporary, int descriptor);
  std::string path_;
  std::string temporary_;
  std::string buffer_;
  int descriptor_ = -1;
};

// Returns the status of AtomicFileWriter::Open(path) and leaves no file. It is
// for programs that compute for a long time before they write.
absl::Status CheckWritable(const std::string& path);

// Removes the files and folders in `folder`, but not below it, that killed
// processes were writing aside (aside.h). A process on another machine counts
// as killed.
void RemoveTemporaries(const std::string& folder);

// Makes the names of the files in `folder` durable.
absl::Status SyncDirectory(const std::string& folder);

// Creates `folder` and the folders above it. Returns INVALID_ARGUMENT if
// `folder` is empty or below a file.
absl::Status MakeDirectories(const std::string& folder);

// Returns whether the name exists. This is also true for a link to nothing and
// for a path that this user may not examine, so that opening it reports the
// error; otherwise it would pass for an optional file that is missing.
bool FileExists(const std::string& path);

// Returns ALREADY_EXISTS, exit code kUsage, if the option --output points to
// anything but an empty folder, because nothing is ever overwritten.
absl::Status CheckNewOutput(const std::string& output);

// Returns INVALID_ARGUMENT, exit code kUsage, if the option --output points to
// the input file, by whatever name. A terminal or a pipe may be both.
absl::Status CheckOutputSpares(const std::string& input,
                               const std::string& output);

// These functions are for code that has its own descriptors. WriteAll writes
// all of `bytes`. FileError is the status of a failed call, "cannot <verb>
// <path>: ...", with the codes above.
absl::Status WriteAll(int descriptor,
                      const std::string& path,
                      absl::string_view bytes);
absl::Status FileError(absl::string_view verb,
                       const std::string& path,
                       int error);

// Returns whether a file that begins with `bytes` (at least eight) is a git-LFS
// pointer, which git without the LFS extension leaves in the place of a large
// file; and the end of the sentence that says so after the path.
bool IsLfsPointer(absl::string_view bytes);
inline constexpr char kIsLfsPointer[] =
    " is a git-LFS pointer, not the file itself, which `git lfs pull` in its "
    "folder fetches";

// Returns the advice for a user without room for a file at `path`, or in that
// folder. It says whether space or inodes are missing.
std::string HowToFindRoom(const std::string& path);

// Returns whether `status` was made by FileError: a file could not be read or
// written, as opposed to missing memory or a failed GPU.
bool IsFileError(const absl::Status& status);

// Joins with exactly one '/'.
std::string JoinPath(absl::string_view folder, absl::string_view name);

}  // namespace dapd
