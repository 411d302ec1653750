// Reads the local cache of the Hugging Face hub, which the package
// huggingface_hub lays out in this way:
//
//   models--Qwen--Qwen3-4B/           (datasets--... for data sets)
//     refs/main                       the commit that the revision stood for
//     snapshots/<commit>/config.json  links into blobs/, in the hub's folders
//     blobs/<digest>                  the contents of the files
//     blobs/<digest>....incomplete    a download that has not ended
//     trees/<commit>.json             the hub's list of that commit's files
//
// This code downloads nothing and writes nothing: deploy/fetch.sh downloads,
// with huggingface_hub itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/hub/hub_id.h"

namespace dapd {

// Returns the first of these that is set: HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. "~" and $NAME in
// them are expanded as a shell does.
std::string HubCacheFolder();

// Describes a commit in the cache.
struct HubSnapshot {
  std::string folder;  // snapshots/<commit>
  std::string commit;
  // Maps the path of each file that the hub has at this commit to its bytes.
  // Unset if the client that filled the cache left no list.
  std::optional<std::map<std::string, uint64_t>> listed;
  // A blob with an unfinished download, of this or another commit; or empty.
  std::string unfinished;
};

// Returns NOT_FOUND, with the command that downloads it, if the cache does not
// have the revision; DATA_LOSS (HalfDownload) if it has no files. Errors have
// exit code kData.
absl::StatusOr<HubSnapshot> FindSnapshot(HubKind kind, const HubId& id);

// Returns OK if the snapshot's file `path` is complete: a file, or a link to a
// file, of the size in the hub's list. Otherwise returns HalfDownload's error.
// A file that is not in the list is not checked: the download does not lack it.
absl::Status CheckFile(HubKind kind,
                       const HubId& id,
                       const HubSnapshot& snapshot,
                       const std::string& path);

// Returns the error for a download that stopped half-way; `what` says what
// shows it.
absl::Status HalfDownload(HubKind kind,
                          const HubId& id,
                          absl::string_view what);

}  // namespace dapd
