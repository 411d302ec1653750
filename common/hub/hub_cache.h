// The local cache of the Hugging Face hub, as the package huggingface_hub lays
// it out:
//
//   models--Qwen--Qwen3-4B/           (datasets--... for data sets)
//     refs/main                       the commit that the revision stood for
//     snapshots/<commit>/config.json  links into blobs/, in the hub's folders
//     blobs/<digest>                  what the files hold
//     blobs/<digest>....incomplete    a download that is under way, or was
//     trees/<commit>.json             the hub's list of that commit's files
//
// Nothing is downloaded here and nothing is written: deploy/fetch.sh does that,
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

// HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub; "~" and $NAME in them stand for what they do in a
// shell.
std::string HubCacheFolder();

// One commit in the cache.
struct HubSnapshot {
  std::string folder;  // snapshots/<commit>
  std::string commit;
  // Bytes of each file that the hub has at this commit, by its path in the
  // folder. Nothing where the client that filled the cache left no list.
  std::optional<std::map<std::string, uint64_t>> listed;
  // A blob whose download did not end, of this or another commit; or empty.
  std::string unfinished;
};

// NOT_FOUND, with the command that downloads it, if the cache does not have
// the revision; DATA_LOSS (as HalfDownload) if it has no files. Exit code
// kData.
absl::StatusOr<HubSnapshot> FindSnapshot(HubKind kind, const HubId& id);

// OK if the snapshot's file `path` is all there: a file or a link that leads to
// one, as large as the hub's list says. Otherwise what is wrong, as
// HalfDownload. A file that the list does not have is not looked for: the
// download is not what lacks it.
absl::Status CheckFile(HubKind kind,
                       const HubId& id,
                       const HubSnapshot& snapshot,
                       const std::string& path);

// The error for a download that stopped half-way, `what` being what shows it.
absl::Status HalfDownload(HubKind kind,
                          const HubId& id,
                          absl::string_view what);

}  // namespace dapd
