#include "services/trainer/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/model/adapter.h"
#include "common/tensor/safetensors.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 40;

absl::Status WriteManifest(const std::string& folder) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
    files[fs::relative(path, folder).string()] = {{"bytes", bytes.size()},
                                                  {"sha256", Sha256Hex(bytes)}};
  }
  return WriteFileAtomically(JoinPath(folder, "manifest.json"),
                             nlohmann::ordered_json{{"files", files}}.dump(2));
}

absl::Status WriteContents(const std::string& folder,
                           const Policy& policy,
                           const RunIdentity& identity) {
  RETURN_IF_ERROR(WriteAdapter(
      JoinPath(folder, "adapter"), policy.live(), identity.base_model_path));
  if (policy.snapshot() != nullptr) {
    RETURN_IF_ERROR(WriteAdapter(JoinPath(folder, "snapshot"),
                                 *policy.snapshot(),
                                 identity.base_model_path));
  }
  RETURN_IF_ERROR(WriteSafetensors(JoinPath(folder, "optimizer.safetensors"),
                                   policy.Moments(),
                                   {{"format", "pt"}}));
  const nlohmann::ordered_json state = {
      {"format", 1},
      {"step", policy.version()},
      {"snapshot_step", policy.snapshot_version()},
      {"seed", identity.seed},
      {"base_model_path", identity.base_model_path},
      {"base_layout_digest", identity.layout_digest},
      {"data_digest", identity.data_digest},
  };
  RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(folder, "state.json"), state.dump(2)));
  return WriteManifest(folder);
}

void RemoveOldest(const std::string& folder, int64_t keep) {
  std::vector<fs::path> checkpoints;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, kPrefix) && !absl::StrContains(name, ".tmp")) {
      checkpoints.push_back(entry.path());
    }
  }
  // Names are zero-padded, so their order is the order of the steps.
  std::sort(checkpoints.begin(), checkpoints.end());
  for (size_t i = 0; i + static_cast<size_t>(keep) < checkpoints.size(); ++i) {
    fs::remove_all(checkpoints[i], error);
  }
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& folder,
                            const Policy& policy,
                            const RunIdentity& identity,
                            int64_t keep) {
  const std::string target =
      JoinPath(folder, absl::StrFormat("%s%06d", kPrefix, policy.version()));
  const std::string aside = absl::StrCat(target, ".tmp");
  std::error_code error;
  fs::remove_all(aside, error);
  RETURN_IF_ERROR(MakeDirectories(aside));
  absl::Status written = WriteContents(aside, policy, identity);
  if (written.ok()) written = SyncDirectory(aside);
  if (!written.ok()) {
    fs::remove_all(aside, error);
    return written;
  }
  fs::remove_all(target, error);
  if (std::rename(aside.c_str(), target.c_str()) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot rename ", aside, " to ", target));
  }
  RETURN_IF_ERROR(SyncDirectory(folder));
  RemoveOldest(folder, keep);
  return absl::OkStatus();
}

}  // namespace dapd
