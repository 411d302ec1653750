#include "services/cli/run_room.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/files.h"
#include "common/config/run_folder.h"
#include "common/model/spec/lora_config.h"

namespace dapd {
namespace {

constexpr int64_t kBytesOfNumber = 4;
// Adapter, snapshot and AdamW's two moments.
constexpr int64_t kCopiesInCheckpoint = 4;
constexpr int64_t kFilesOfCheckpoint = 12;
constexpr int64_t kFilesOfRun = 40;
constexpr double kMib = 1024.0 * 1024.0;

}  // namespace

RunRoom RoomOfRun(const Config& config, const ModelConfig& model) {
  const auto lora = MakeLoraConfig(config.lora, model);
  if (!lora.ok()) return {};
  const int64_t adapter =
      kBytesOfNumber *
      NumLoraParameters(model, lora->rank, TargetsOf(*lora, model));
  const int64_t taken =
      1 +
      config.trainer.steps / std::max<int64_t>(1, config.checkpoint.interval);
  const int64_t kept = config.checkpoint.keep == 0
                           ? taken
                           : std::min(taken, config.checkpoint.keep);
  const bool is_there =
      FileExists(JoinPath(FolderOf(config.run), "config.yaml"));
  const int64_t checkpoints = 1 + (is_there ? 0 : kept);
  // The run's adapter/ and adapter-best/ stand beside them.
  const int64_t adapters = is_there ? 1 : 2;
  return {.bytes = adapter * (checkpoints * kCopiesInCheckpoint + adapters),
          .files = checkpoints * kFilesOfCheckpoint + kFilesOfRun};
}

std::string ExistingFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path nearest = fs::absolute(folder, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  return nearest;
}

std::string WantOfRoom(const std::string& folder, const RunRoom& room) {
  struct statvfs system = {};
  if (::statvfs(ExistingFolder(folder).c_str(), &system) != 0) return "";
  const double free = static_cast<double>(system.f_bavail) *
                      static_cast<double>(system.f_frsize);
  if (free < static_cast<double>(room.bytes)) {
    return absl::StrFormat(
        "the run's adapters and checkpoints take about %.0f MiB in %s, whose "
        "file system has %.0f MiB left; free some space, choose another "
        "folder, or lower checkpoint.keep or lora.rank",
        static_cast<double>(room.bytes) / kMib,
        folder,
        free / kMib);
  }
  // Some file systems do not count inodes, and report none.
  if (system.f_files > 0 &&
      static_cast<int64_t>(system.f_favail) < room.files) {
    return absl::StrCat("the run makes about ",
                        room.files,
                        " files in ",
                        folder,
                        ", whose file system has inodes for ",
                        system.f_favail,
                        " (df -i); remove files, or choose another folder");
  }
  return "";
}

}  // namespace dapd
