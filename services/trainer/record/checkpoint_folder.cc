#include "services/trainer/record/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kDamaged[] = ".damaged";

// Calls `visit` with the path and the name of all that has a checkpoint's
// prefix, as long as the folder can be read. Not a range-for, which throws.
std::error_code ForEachPart(
    const std::string& folder,
    const std::function<void(const fs::path& path, const std::string& name)>&
        visit) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (absl::StartsWith(name, kPrefix)) visit(entry->path(), name);
  }
  return error;
}

}  // namespace

std::string CheckpointName(int64_t step) {
  return absl::StrFormat("%s%06d", kPrefix, step);
}

absl::StatusOr<Checkpoints> ListCheckpoints(const std::string& folder) {
  Checkpoints checkpoints;
  const std::error_code error =
      ForEachPart(folder, [&](const fs::path& path, const std::string& name) {
        if (!absl::StrContains(name, '.')) {
          checkpoints.complete.push_back(path);
        } else if (absl::EndsWith(name, kDamaged)) {
          checkpoints.damaged.push_back(path);
        }
      });
  if (error && error != std::errc::no_such_file_or_directory) {
    return FileError("list", folder, error.value());
  }
  // Names are zero-padded, so their order is the order of the steps, and one
  // with more digits is that of a later step.
  std::ranges::sort(checkpoints.complete, {}, [](const std::string& path) {
    return std::pair(path.size(), path);
  });
  return checkpoints;
}

absl::Status RenameCheckpoint(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return FileError(absl::StrCat("rename ", from, " to"), to, errno);
}

absl::Status SetAsideDamaged(const std::string& checkpoint) {
  std::error_code error;
  fs::remove_all(checkpoint + kDamaged, error);
  return RenameCheckpoint(checkpoint, checkpoint + kDamaged);
}

void RemoveHalfCheckpoints(const std::string& folder) {
  std::vector<fs::path> asides;
  std::error_code error =
      ForEachPart(folder, [&](const fs::path& path, const std::string& name) {
        if (absl::EndsWith(name, kCheckpointAside)) asides.push_back(path);
      });
  for (const fs::path& aside : asides) fs::remove_all(aside, error);
}

// Renamed before they are removed: half a checkpoint never has its name.
void RemoveOldestCheckpoints(const std::string& folder, int64_t keep) {
  if (keep == 0) return;
  const absl::StatusOr<Checkpoints> listed = ListCheckpoints(folder);
  if (!listed.ok()) return;  // the next one is followed by another try
  const std::vector<std::string>& checkpoints = listed->complete;
  std::error_code error;
  for (size_t i = 0; i + static_cast<size_t>(keep) < checkpoints.size(); ++i) {
    const std::string aside = checkpoints[i] + kCheckpointAside;
    fs::remove_all(aside, error);
    if (!RenameCheckpoint(checkpoints[i], aside).ok()) continue;
    DAPD_FAILPOINT("checkpoint.during_prune");
    fs::remove_all(aside, error);
  }
}

}  // namespace dapd
