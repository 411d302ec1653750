#include "services/trainer/copy/run_uploader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/random_name.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr int64_t kMaxOwnerBytes = 1 << 16;
// The most parts of a file: restoring costs a request for each.
constexpr size_t kMaxParts = 64;
// A process that has not noticed yet that it was replaced may have sent objects
// that no commit names.
constexpr absl::Duration kOrphanAge = absl::Hours(1);

absl::StatusOr<std::string> DigestOf(const std::string& path,
                                     int64_t offset,
                                     int64_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError("open", path, errno);
  const absl::Cleanup close_file = [file] { ::close(file); };
  Sha256 digest;
  std::string block(kFileBlockBytes, '\0');
  while (bytes > 0) {
    const size_t wanted = std::min(kFileBlockBytes, static_cast<size_t>(bytes));
    const ssize_t count = ::pread(file, block.data(), wanted, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path, errno);
    if (count == 0) {
      return absl::DataLossError(absl::StrCat(path, " has become shorter"));
    }
    digest.Update(absl::string_view(block.data(), static_cast<size_t>(count)));
    offset += count;
    bytes -= count;
  }
  return digest.HexDigest();
}

bool IsSame(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

// Returns the first parts, as many as make up the first `bytes` bytes.
std::vector<Content> Beginning(const std::vector<Content>& parts,
                               int64_t bytes) {
  std::vector<Content> beginning;
  for (const Content& part : parts) {
    if (part.bytes > bytes) break;
    bytes -= part.bytes;
    beginning.push_back(part);
  }
  return beginning;
}

// Returns how many of the first parts stay when `bytes` more bytes follow: a
// part that is shorter than everything behind it is merged with what follows.
// So each part that stays is at least half of the rest of the file, which makes
// them few, and a byte is sent again as often as the file doubles.
size_t PartsThatStay(const std::vector<Content>& parts, int64_t bytes) {
  size_t stay = parts.size();
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].bytes < bytes) stay = i;
    bytes += parts[i].bytes;
  }
  return stay;
}

}  // namespace

RunUploader::RunUploader(ObjectStore* store,
                         std::string run_id,
                         std::string run_name,
                         int64_t keep)
    : store_(*store),
      run_id_(std::move(run_id)),
      run_name_(std::move(run_name)),
      keep_(keep),
      token_(RandomName()) {}

// --- Whose place it is -------------------------------------------------------

// Returns OK if nothing is at the URL, and then sets *is_free, or if this run
// owns the URL or may begin there.
absl::Status RunUploader::ReadOwner(bool* is_free) {
  const auto text = store_.Read(kCopyOwner, kMaxOwnerBytes);
  *is_free = absl::IsNotFound(text.status());
  if (*is_free) {
    ASSIGN_OR_RETURN(auto objects, store_.List(""));
    std::erase_if(objects,
                  [](const auto& object) { return IsPartName(object.first); });
    if (objects.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(store_.url(),
                     " holds something that is not a copy of a run (",
                     Printable(objects.begin()->first),
                     "); choose another checkpoint.copy_to"));
  }
  RETURN_IF_ERROR(text.status());
  const auto owner = ParseJson(*text, kCopyOwner);
  const auto is_text = [&](const char* key) {
    return owner.ok() && owner->is_object() && owner->contains(key) &&
           owner->at(key).is_string();
  };
  if (!is_text("run") || !is_text("copier")) {
    return absl::FailedPreconditionError(
        absl::StrCat(store_.url(),
                     "/",
                     kCopyOwner,
                     " is damaged, so it is not known whose copy this is; move "
                     "it away, or choose another checkpoint.copy_to"));
  }
  if (owner->at("run") != run_id_) {
    bool is_lost = false;
    if (!is_open_) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCommits(store_));
      is_lost = steps.empty();
    }
    if (!is_lost) {
      return absl::FailedPreconditionError(absl::StrCat(
          store_.url(),
          " holds the copy of another run of that name; choose another "
          "checkpoint.copy_to or run.name, or move that copy away"));
    }
    LogInfo(absl::StrCat(store_.url(),
                         " is taken over from another run of that name, of "
                         "which it holds nothing that could be restored"));
    return absl::OkStatus();
  }
  if (is_open_ && owner->at("copier") != token_) {
    return absl::AbortedError(absl::StrCat(
        "another process has begun to copy this run to ", store_.url()));
  }
  return absl::OkStatus();
}

absl::Status RunUploader::StillOwner() {
  bool is_free = false;
  RETURN_IF_ERROR(ReadOwner(&is_free));
  if (!is_free) return absl::OkStatus();
  is_open_ = false;
  verified_.clear();
  return absl::UnavailableError(absl::StrCat(
      "the copy at ", store_.url(), " was removed; a new one will be started"));
}

absl::Status RunUploader::Open() {
  if (is_open_) return absl::OkStatus();
  bool is_free = false;
  RETURN_IF_ERROR(ReadOwner(&is_free));
  const nlohmann::json owner = {
      {"run", run_id_}, {"name", run_name_}, {"copier", token_}};
  RETURN_IF_ERROR(store_.Write(kCopyOwner, owner.dump() + "\n"));
  commits_.clear();
  damaged_.clear();
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCommits(store_));
  for (const int64_t step : steps) {
    auto copy = ReadCommit(store_, step);
    if (absl::IsDataLoss(copy.status())) {
      LogWarning(std::string(copy.status().message()));
      damaged_.insert(step);
      continue;
    }
    RETURN_IF_ERROR(copy.status());
    for (const auto& [path, parts] : copy->files) {
      for (const Content& part : parts) verified_.insert(part.sha256);
    }
    commits_[step] = *std::move(copy);
  }
  is_open_ = true;
  return absl::OkStatus();
}

int64_t RunUploader::newest() const {
  return commits_.empty() ? 0 : commits_.rbegin()->first;
}

std::set<int64_t> RunUploader::steps() const {
  std::set<int64_t> steps;
  for (const auto& [step, copy] : commits_) {
    if (step <= last_uploaded_) steps.insert(step);
  }
  return steps;
}

// --- Upload ------------------------------------------------------------------

absl::StatusOr<std::vector<Content>> RunUploader::PartsOf(const CutFile& file) {
  struct stat info = {};
  if (::stat(file.path.c_str(), &info) != 0) {
    return FileError("stat", file.path, errno);
  }
  if (info.st_size < file.bytes) {
    return absl::DataLossError(absl::StrCat(file.path, " has become shorter"));
  }
  KnownFile& known = files_[file.name];
  std::vector<Content> parts;
  const bool is_known = known.device == info.st_dev &&
                        known.inode == info.st_ino &&
                        (file.grows || IsSame(known.changed, info.st_mtim));
  if (is_known) {
    parts = Beginning(known.parts, file.bytes);
  } else if (!commits_.empty()) {
    const auto& files = commits_.rbegin()->second.files;
    const auto copied = files.find(file.name);
    int64_t offset = 0;
    if (copied != files.end()) {
      for (const Content& part : Beginning(copied->second, file.bytes)) {
        ASSIGN_OR_RETURN(const std::string digest,
                         DigestOf(file.path, offset, part.bytes));
        if (digest != part.sha256) break;
        parts.push_back(part);
        offset += part.bytes;
      }
    }
  }
  int64_t offset = BytesOf(parts);
  if (offset < file.bytes && parts.size() >= kMaxParts) {
    const size_t stay = PartsThatStay(parts, file.bytes - offset);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(stay), parts.end());
    offset = BytesOf(parts);
  }
  if (offset < file.bytes) {
    Content rest{.bytes = file.bytes - offset};
    ASSIGN_OR_RETURN(rest.sha256, DigestOf(file.path, offset, rest.bytes));
    parts.push_back(std::move(rest));
  }
  if (!is_known || BytesOf(known.parts) < file.bytes) {
    known = {.device = info.st_dev,
             .inode = info.st_ino,
             .changed = info.st_mtim,
             .parts = parts};
  }
  return parts;
}

absl::Status RunUploader::Send(const CutFile& file,
                               const std::vector<Content>& parts,
                               std::map<std::string, StoredObject>* present) {
  int64_t offset = 0;
  for (const Content& part : parts) {
    const std::string name = ObjectName(part);
    const auto there = present->find(name);
    bool is_whole =
        there != present->end() && there->second.bytes == part.bytes;
    if (is_whole && !verified_.contains(part.sha256)) {
      ASSIGN_OR_RETURN(is_whole, store_.Check(name, part));
    }
    if (!is_whole) {
      DAPD_FAILPOINT("copy.before_object");
      const absl::Status sent = store_.Put(name, part, file.path, offset);
      // The known parts of the file may be wrong, so it is read anew.
      if (!sent.ok()) files_.erase(file.name);
      RETURN_IF_ERROR(sent);
      (*present)[name] = {.bytes = part.bytes};
      DAPD_FAILPOINT("copy.after_object");
    }
    verified_.insert(part.sha256);
    offset += part.bytes;
  }
  return absl::OkStatus();
}

absl::Status RunUploader::Upload(const RunCut& cut) {
  RETURN_IF_ERROR(StillOwner());
  // The objects are listed each time, because the store's owner may have
  // removed objects.
  ASSIGN_OR_RETURN(auto present, store_.List(kCopyObjects));
  RunCopy copy{.step = cut.step, .run_id = run_id_};
  for (const CutFile& file : cut.files) {
    auto parts = PartsOf(file);
    // Samples may be removed by hand while the run goes on.
    if (!file.is_linked && absl::IsNotFound(parts.status())) continue;
    RETURN_IF_ERROR(parts.status());
    RETURN_IF_ERROR(Send(file, *parts, &present));
    copy.files[file.name] = *std::move(parts);
  }
  DAPD_FAILPOINT("copy.before_commit");
  const auto known = commits_.find(cut.step);
  if (known == commits_.end() || known->second != copy) {
    RETURN_IF_ERROR(StillOwner());
    RETURN_IF_ERROR(store_.Write(CommitName(cut.step), CommitText(copy)));
  }
  damaged_.erase(cut.step);
  if (known != commits_.end()) Release(known->second);
  commits_[cut.step] = std::move(copy);
  last_uploaded_ = std::max(last_uploaded_, cut.step);
  DAPD_FAILPOINT("copy.after_commit");
  return absl::OkStatus();
}

// --- Thinning ----------------------------------------------------------------

void RunUploader::Release(const RunCopy& copy) {
  for (const auto& [path, parts] : copy.files) {
    for (const Content& part : parts) released_.insert(ObjectName(part));
  }
}

absl::Status RunUploader::Thin() {
  const std::set<int64_t> own = steps();
  if (keep_ > 0 && own.size() > static_cast<size_t>(keep_)) {
    const int64_t oldest_kept = *std::prev(own.end(), keep_);
    std::vector<std::string> removed;
    for (const int64_t step : damaged_) {
      if (step < oldest_kept) removed.push_back(CommitName(step));
    }
    const auto first_kept = commits_.lower_bound(oldest_kept);
    for (auto each = commits_.begin(); each != first_kept; ++each) {
      removed.push_back(CommitName(each->first));
      Release(each->second);
    }
    RETURN_IF_ERROR(StillOwner());
    RETURN_IF_ERROR(store_.Remove(removed));
    commits_.erase(commits_.begin(), first_kept);
    std::erase_if(damaged_, [&](int64_t step) { return step < oldest_kept; });
    DAPD_FAILPOINT("copy.during_thinning");
  }
  std::set<std::string> named;
  for (const auto& [step, copy] : commits_) {
    for (const auto& [path, parts] : copy.files) {
      for (const Content& part : parts) named.insert(ObjectName(part));
    }
  }
  ASSIGN_OR_RETURN(const auto objects, store_.List(""));
  std::vector<std::string> orphans;
  for (const auto& [name, object] : objects) {
    const bool is_orphan =
        IsPartName(name) || (IsObjectName(name) && !named.contains(name));
    if (!is_orphan) continue;
    if (released_.contains(name) ||
        object.age.value_or(absl::ZeroDuration()) > kOrphanAge) {
      orphans.push_back(name);
    }
  }
  RETURN_IF_ERROR(store_.Remove(orphans));
  for (const std::string& name : orphans) {
    if (!IsObjectName(name)) continue;
    verified_.erase(name.substr(std::size(kCopyObjects)));
  }
  released_.clear();
  return absl::OkStatus();
}

}  // namespace dapd
