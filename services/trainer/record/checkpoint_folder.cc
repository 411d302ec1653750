#include "services/trainer/record/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kDamaged[] = ".damaged";

// The names of all that has a checkpoint's prefix. Errors as ListFolder.
absl::StatusOr<std::vector<std::string>> ListParts(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  std::erase_if(names, [](const std::string& name) {
    return !absl::StartsWith(name, kPrefix);
  });
  return names;
}

}  // namespace

std::string CheckpointName(int64_t step) {
  return absl::StrFormat("%s%06d", kPrefix, step);
}

absl::StatusOr<Checkpoints> ListCheckpoints(const std::string& folder) {
  Checkpoints checkpoints;
  const absl::StatusOr<std::vector<std::string>> names = ListParts(folder);
  if (absl::IsNotFound(names.status())) return checkpoints;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    if (!absl::StrContains(name, '.')) {
      checkpoints.complete.push_back(path);
    } else if (absl::EndsWith(name, kDamaged)) {
      checkpoints.damaged.push_back(path);
    }
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
  const absl::StatusOr<std::vector<std::string>> names = ListParts(folder);
  if (!names.ok()) return;  // whoever writes there says why
  std::error_code error;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kCheckpointAside)) continue;
    fs::remove_all(JoinPath(folder, name), error);
  }
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
