#include "services/cli/output_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/config/run_folder.h"
#include "common/config/run_settings.h"
#include "services/cli/run_room.h"
#include "services/trainer/record/run_identity.h"

namespace dapd {
namespace {

// Checks the folder or the nearest existing one above it.
absl::Status CheckWritableFolder(const std::string& folder) {
  const std::string nearest = ExistingFolder(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(nearest, error)) {
    return FileError("write", nearest, ENOTDIR);
  }
  if (::faccessat(AT_FDCWD, nearest.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return FileError("write", nearest, errno);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> OutputWarnings(const Config& config,
                                        const ModelConfig& model) {
  std::vector<std::string> warnings;
  const RunRoom room = RoomOfRun(config, model);
  const auto check = [&](const char* key, const std::string& parent) {
    const std::string folder = JoinPath(parent, config.run.name);
    const absl::Status status = CheckWritableFolder(folder);
    if (status.ok()) {
      if (const std::string want = WantOfRoom(folder, room); !want.empty()) {
        warnings.push_back(absl::StrCat(key, ": ", want));
      }
      return;
    }
    warnings.push_back(absl::StrCat(key,
                                    ": ",
                                    folder,
                                    " cannot be written on this machine: ",
                                    std::string(status.message())));
  };
  check("run.output_dir", config.run.output_dir);
  const std::string& copy = config.checkpoint.copy_to;
  if (!copy.empty() && !absl::StrContains(copy, "://")) {
    check("checkpoint.copy_to", copy);
  }
  return warnings;
}

std::string OtherRunWarning(const Config& config,
                            const std::string& data_digest) {
  const absl::Status status = CheckIdentity(
      FolderOf(config.run),
      {.data_digest = data_digest, .settings = ResultSettings(config)});
  return std::string(status.message());
}

}  // namespace dapd
