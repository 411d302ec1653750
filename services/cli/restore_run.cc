#include "services/cli/restore_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/config/run_folder.h"
#include "common/copy/run_copy.h"
#include "services/trainer/record/manifest.h"
#include "services/trainer/record/run_outcome.h"
#include "services/trainer/record/run_overview.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

// AsideOf would not do, because its name ends with its process: a later call
// continues with the files that an interrupted call has restored.
constexpr char kAside[] = ".restoring";
constexpr size_t kMostNamed = 10;

// Returns the number of first parts that the file already holds.
size_t WholeParts(int file, const std::vector<Content>& parts) {
  std::string block(kFileBlockBytes, '\0');
  off_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Sha256 digest;
    int64_t left = parts[i].bytes;
    while (left > 0) {
      const size_t wanted =
          std::min(kFileBlockBytes, static_cast<size_t>(left));
      const ssize_t count = ::pread(file, block.data(), wanted, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return i;
      digest.Update(
          absl::string_view(block.data(), static_cast<size_t>(count)));
      offset += count;
      left -= count;
    }
    if (digest.HexDigest() != parts[i].sha256) return i;
  }
  return parts.size();
}

absl::Status RestoreFile(ObjectStore& store,
                         const std::vector<Content>& parts,
                         const std::string& path) {
  const int file =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return FileError("create", path, errno);
  const absl::Cleanup close_file = [file] { ::close(file); };
  const size_t whole = WholeParts(file, parts);
  int64_t offset = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i >= whole) {
      RETURN_IF_ERROR(store.Get(ObjectName(parts[i]), parts[i], path, offset));
    }
    offset += parts[i].bytes;
  }
  if (::ftruncate(file, offset) != 0) return FileError("cut", path, errno);
  // Checks the bytes on disk, not the received ones.
  if (WholeParts(file, parts) != parts.size()) {
    return absl::DataLossError(
        absl::StrCat(path, " is not what was received; is the disk healthy?"));
  }
  if (::fsync(file) != 0) return FileError("sync", path, errno);
  return absl::OkStatus();
}

// Removes the files that an interrupted call for another commit left.
void RemoveOthers(const std::string& folder, const RunCopy& copy) {
  std::error_code error;
  std::vector<fs::path> others;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().lexically_relative(folder).string();
    if (entry->is_directory(error) && !entry->is_symlink(error)) continue;
    if (!copy.files.contains(name) && name != kRunLock)
      others.push_back(entry->path());
  }
  for (const fs::path& other : others) fs::remove(other, error);
}

absl::Status SyncFolders(const std::string& folder) {
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (!entry->is_directory(error)) continue;
    RETURN_IF_ERROR(SyncDirectory(entry->path()));
  }
  return SyncDirectory(folder);
}

// Records the end of a finished run: the copy is made just before the end is
// told, so it does not show whether the end was told. A lost folder is no
// reason to tell the end again.
absl::Status RecordEnd(const std::string& folder) {
  const auto run = ReadRunOverview(folder);
  if (!run.ok() || run->state != RunState::kFinished) return absl::OkStatus();
  return WriteOutcome(folder, OutcomeOf(absl::OkStatus()));
}

absl::Status RestoreFiles(ObjectStore& store,
                          const RunCopy& copy,
                          const std::string& folder) {
  RemoveOthers(folder, copy);
  const std::string checkpoint =
      absl::StrFormat("checkpoints/step-%06d", copy.step);
  for (const auto& [name, parts] : copy.files) {
    const std::string path = JoinPath(folder, name);
    RETURN_IF_ERROR(MakeDirectories(fs::path(path).parent_path()));
    RETURN_IF_ERROR(RestoreFile(store, parts, path));
  }
  RETURN_IF_ERROR(VerifyManifest(JoinPath(folder, checkpoint)));
  RETURN_IF_ERROR(RecordEnd(folder));
  return SyncFolders(folder);
}

// Locks a folder against other restores. A trainer of the run takes this lock,
// too (common/config/run_folder.h).
absl::StatusOr<int> LockFolder(const std::string& folder) {
  RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = JoinPath(folder, kRunLock);
  const int lock =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (lock < 0) return FileError("create", path, errno);
  absl::Cleanup unlock = [lock] { ::close(lock); };
  ASSIGN_OR_RETURN(const bool is_ours, TryLock(lock, path));
  if (is_ours) {
    std::move(unlock).Cancel();
    return lock;
  }
  return absl::UnavailableError(absl::StrCat(
      folder, " is in use: another process is restoring the same folder"));
}

absl::Status RefuseIfThere(const std::string& folder) {
  struct stat info = {};
  if (::lstat(folder.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : FileError("look for", folder, errno);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(folder,
                   " already exists, and a run is never overwritten; move it "
                   "away, or choose another folder"));
}

// Returns "step 2, step 4"; if there are many, only the newest.
std::string StepsText(std::vector<int64_t> steps) {
  const bool is_cut = steps.size() > kMostNamed;
  if (is_cut) steps.erase(steps.begin(), steps.end() - kMostNamed);
  return absl::StrCat(is_cut ? "..., " : "", absl::StrJoin(steps, ", "));
}

// Returns an error that names the runs with a copy directly under the URL.
absl::Status NoCopyAt(ObjectStore& store) {
  ASSIGN_OR_RETURN(const auto objects, store.List(""));
  std::set<std::string> runs;
  const std::string owner = absl::StrCat("/", kCopyOwner);
  for (const auto& [name, object] : objects) {
    if (!absl::EndsWith(name, owner)) continue;
    runs.insert(Printable(name.substr(0, name.size() - owner.size())));
    if (runs.size() == kMostNamed) break;
  }
  return WithExitCode(
      absl::NotFoundError(
          runs.empty()
              ? absl::StrCat(
                    "there is no complete copy of a run at ",
                    store.url(),
                    "; the URL is checkpoint.copy_to followed by /<run.name>")
              : absl::StrCat("there is no copy of a run at ",
                             store.url(),
                             ", but there are copies below it: ",
                             absl::StrJoin(runs, ", "),
                             "; add one of these to the URL")),
      ExitCode::kData);
}

// Returns `wanted` or, if it is negative, the newest copied step that is not in
// `tried`; nothing if all were tried.
absl::StatusOr<std::optional<int64_t>> NextStep(
    ObjectStore& store, int64_t wanted, const std::set<int64_t>& tried) {
  ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListCommits(store));
  if (steps.empty() && tried.empty()) return NoCopyAt(store);
  if (wanted >= 0) {
    if (!std::ranges::count(steps, wanted)) {
      return absl::NotFoundError(absl::StrCat(store.url(),
                                              " has no copy of step ",
                                              wanted,
                                              "; it has copies of steps ",
                                              StepsText(steps)));
    }
    steps = {wanted};
  }
  std::erase_if(steps, [&](int64_t step) { return tried.contains(step); });
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

absl::StatusOr<RestoredRun> RestoreStep(ObjectStore& store,
                                        int64_t step,
                                        const std::string& aside) {
  ASSIGN_OR_RETURN(const RunCopy copy, ReadCommit(store, step));
  LogInfo(absl::StrCat("restoring step ",
                       copy.step,
                       " from ",
                       store.url(),
                       ": ",
                       copy.files.size(),
                       " files, ",
                       BytesOf(copy),
                       " bytes"));
  RETURN_IF_ERROR(RestoreFiles(store, copy, aside));
  return RestoredRun{.step = copy.step,
                     .files = static_cast<int64_t>(copy.files.size()),
                     .bytes = BytesOf(copy)};
}

// Gives the restored folder its name.
absl::Status Finish(const std::string& aside, const std::string& folder) {
  RETURN_IF_ERROR(RefuseIfThere(folder));
  if (std::rename(aside.c_str(), folder.c_str()) != 0) {
    return FileError(absl::StrCat("rename ", aside, " to"), folder, errno);
  }
  return SyncDirectory(fs::absolute(folder).parent_path());
}

}  // namespace

absl::StatusOr<RestoredRun> RestoreRun(ObjectStore& store,
                                       const std::string& folder,
                                       int64_t step) {
  RETURN_IF_ERROR(RefuseIfThere(folder));
  std::set<int64_t> tried;
  ASSIGN_OR_RETURN(std::optional<int64_t> next, NextStep(store, step, tried));
  const std::string aside = folder + kAside;
  ASSIGN_OR_RETURN(const int lock, LockFolder(aside));
  const absl::Cleanup unlock = [lock] { ::close(lock); };
  // The locked folder may have got this name meanwhile.
  RETURN_IF_ERROR(RefuseIfThere(folder));
  absl::Status last;
  while (next.has_value()) {
    const auto run = RestoreStep(store, *next, aside);
    if (run.ok()) {
      RETURN_IF_ERROR(Finish(aside, folder));
      return run;
    }
    last = run.status();
    const bool is_damaged = absl::IsDataLoss(last) || absl::IsNotFound(last);
    if (!is_damaged) return last;
    const int64_t failed = *next;
    tried.insert(failed);
    // The copies are listed anew, because a run that goes on adds to its copy
    // and removes from it.
    ASSIGN_OR_RETURN(next, NextStep(store, step, tried));
    if (next.has_value()) {
      LogWarning(absl::StrCat("the copy of step ",
                              failed,
                              " cannot be restored: ",
                              std::string(last.message()),
                              "; the copy of step ",
                              *next,
                              " is tried"));
    }
  }
  return absl::DataLossError(absl::StrCat("nothing at ",
                                          store.url(),
                                          step >= 0 ? " of that step" : "",
                                          " can be restored; the last error: ",
                                          std::string(last.message())));
}

}  // namespace dapd
