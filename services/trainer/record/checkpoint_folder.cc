#include "services/trainer/record/checkpoint_folder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "common/base/aside.h"
#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kPrefix[] = "step-";
constexpr char kAside[] = ".tmp";  // begins kAsideMark, too

// Returns the names of all entries with a checkpoint's prefix, or the errors of
// ListFolder.
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
    } else if (absl::EndsWith(name, kDamagedMark)) {
      checkpoints.damaged.push_back(path);
    }
  }
  // Names are zero-padded, so their order is the order of the steps; a name
  // with more digits belongs to a later step.
  std::ranges::sort(checkpoints.complete, {}, [](const std::string& path) {
    return std::pair(path.size(), path);
  });
  return checkpoints;
}

void RemoveHalfCheckpoints(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = ListParts(folder);
  if (!names.ok()) return;  // whoever writes there says why
  for (const std::string& name : *names) {
    if (absl::StrContains(name, kAside)) RemoveAside(JoinPath(folder, name));
  }
}

void RemoveOldestCheckpoints(const std::string& folder, int64_t keep) {
  if (keep == 0) return;
  const absl::StatusOr<Checkpoints> listed = ListCheckpoints(folder);
  if (!listed.ok()) return;  // the next one is followed by another try
  const std::vector<std::string>& checkpoints = listed->complete;
  for (size_t i = 0; i + static_cast<size_t>(keep) < checkpoints.size(); ++i) {
    const absl::StatusOr<std::string> aside = MoveAside(checkpoints[i]);
    if (!aside.ok()) continue;
    DAPD_FAILPOINT("checkpoint.during_prune");
    RemoveAside(*aside);
  }
}

}  // namespace dapd
