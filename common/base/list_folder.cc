#include "common/base/list_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "common/base/exit_code.h"
#include "common/base/files.h"

namespace dapd {

namespace fs = std::filesystem;

absl::Status CheckMayLookFor(const std::string& path,
                             const std::error_code& error) {
  if (error != std::errc::permission_denied) return absl::OkStatus();
  return WithExitCode(FileError("look for", path, error.value()),
                      ExitCode::kData);
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error) return FileError("list", folder, error.value());
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<std::vector<std::string>> ListFilesBelow(
    const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code unseen;  // a link that leads nowhere is no file
    const bool is_file = entry->is_regular_file(unseen);
    if (unseen && unseen != std::errc::no_such_file_or_directory) {
      return FileError("stat", entry->path(), unseen.value());
    }
    if (is_file) names.push_back(entry->path().lexically_relative(folder));
  }
  if (error) return FileError("list", folder, error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace dapd
