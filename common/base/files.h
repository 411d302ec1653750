// Files: bounded reads, and writes that a crash can never leave half done.
//
// A write goes to a new file "<path>.tmp-<pid>", is flushed to disk (fsync),
// and then renamed over the target, and the folder is synced. A reader sees the
// old file or the new one, never a part. What is no file but a device, a pipe
// or /dev/stdout is never replaced: it is written into. Errors name the path
// and the system's reason; a full disk and a file that may not grow (ulimit -f)
// are RESOURCE_EXHAUSTED, a missing file NOT_FOUND, a folder or another path
// that cannot be a file's INVALID_ARGUMENT, one that is not this user's to open
// PERMISSION_DENIED, with the user's number and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// How much of a large file is read at a time.
inline constexpr size_t kFileBlockBytes = size_t{1} << 20;

// The whole file; INVALID_ARGUMENT if it is larger than `max_bytes`, found out
// before anything is read.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes);

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes);

// The streaming form, for files too large to hold. Unless Commit() returned
// OK, the destructor removes what was written; what went into a device or a
// pipe stays there.
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

// What AtomicFileWriter::Open(path) says, for those who write only when they
// have computed for long. Leaves nothing.
absl::Status CheckWritable(const std::string& path);

// Removes the files and folders in `folder`, but not below it, that killed
// processes were writing aside (aside.h). A process on another machine counts
// as killed.
void RemoveTemporaries(const std::string& folder);

// Makes the names in `folder` durable.
absl::Status SyncDirectory(const std::string& folder);

// mkdir -p; INVALID_ARGUMENT if `folder` is empty or below a file.
absl::Status MakeDirectories(const std::string& folder);

// Whether something has that name. A link to nothing has, and so has what this
// user may not look for: whoever opens it says what is wrong, where a file that
// may be missing would be passed over.
bool FileExists(const std::string& path);

// For what is never written over: ALREADY_EXISTS, exit code kUsage, if anything
// but an empty folder stands where the option --output points to.
absl::Status CheckNewOutput(const std::string& output);

// INVALID_ARGUMENT, exit code kUsage, if the option --output points to the file
// that is read, `input`, by whatever name. A terminal or pipe may be both.
absl::Status CheckOutputSpares(const std::string& input,
                               const std::string& output);

// For code with descriptors of its own: all of `bytes`; and the status of a
// failed call, as the head of this file says ("cannot <verb> <path>: ...").
absl::Status WriteAll(int descriptor,
                      const std::string& path,
                      absl::string_view bytes);
absl::Status FileError(absl::string_view verb,
                       const std::string& path,
                       int error);

// Whether what begins with `bytes`, eight of them at least, is not the file
// itself but what git leaves in its place without its extension for large
// files; and the end of the sentence that says so behind the path.
bool IsLfsPointer(absl::string_view bytes);
inline constexpr char kIsLfsPointer[] =
    " is a git-LFS pointer, not the file itself, which `git lfs pull` in its "
    "folder fetches";

// The advice for a user who has no room for a file at `path`, or in that
// folder: it says whether space or inodes are missing.
std::string HowToFindRoom(const std::string& path);

// Whether `status` is FileError's: it was a file that could not be written or
// read, and no memory or GPU that was short meanwhile.
bool IsFileError(const absl::Status& status);

// Joins with exactly one '/'.
std::string JoinPath(absl::string_view folder, absl::string_view name);

}  // namespace dapd
