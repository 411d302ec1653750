#include "common/config/shipped_configs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/this_program.h"

namespace dapd {
namespace {

constexpr char kEnding[] = ".yaml";

}  // namespace

std::string ShippedConfigsFolder() {
  // <release>/bin/dapd, <repository>/build/bin/dapd
  const auto release =
      std::filesystem::path(ThisProgram()).parent_path().parent_path();
  for (const auto& root : {release, release.parent_path()}) {
    std::error_code error;
    if (!root.empty() && std::filesystem::is_directory(root / "configs", error))
      return root / "configs";
  }
  return "";
}

std::vector<std::string> ConfigNames(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() == kEnding) names.push_back(path.stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> FindConfig(const std::string& given,
                                       const std::string& folder) {
  std::error_code error;
  const bool is_bare =
      !given.empty() && given.find_first_of("/.") == std::string::npos;
  const bool is_file = std::filesystem::exists(given, error) &&
                       !std::filesystem::is_directory(given, error);
  if (!is_bare || is_file || folder.empty()) return given;
  std::string shipped = JoinPath(folder, absl::StrCat(given, kEnding));
  if (FileExists(shipped)) return shipped;
  return ConfigError(absl::StrCat(Printable(given),
                                  " is neither a file nor a configuration of ",
                                  folder,
                                  ", which has ",
                                  absl::StrJoin(ConfigNames(folder), ", ")));
}

void AddConfigArgument(Command& command, std::string& config) {
  command
      .AddOption("config",
                 config,
                 "YAML configuration, or the name of one that is shipped")
      .Path()
      .Required();
}

}  // namespace dapd
