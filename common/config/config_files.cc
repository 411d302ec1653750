#include "common/config/config_files.h"

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/user_path.h"
#include "common/config/load_config.h"
#include "common/config/shipped_configs.h"
#include "common/config/strict_yaml.h"

namespace dapd {
namespace {

constexpr size_t kMaxExtended = 8;

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  auto text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kConfig);
  try {
    return ConfigFile{path, ParseStrictYaml(*text)};
  } catch (const YAML::Exception& error) {
    return ConfigError(absl::StrCat(Printable(path),
                                    ":",
                                    error.mark.line + 1,
                                    ": not valid YAML: ",
                                    error.msg));
  }
}

}  // namespace

YAML::Node ConfigFile::extended() const {
  const YAML::Node& map = root;
  return map.IsMap() ? map[kExtends] : YAML::Node(YAML::NodeType::Undefined);
}

absl::StatusOr<std::vector<ConfigFile>> ReadConfigFiles(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string found,
                   FindConfig(path, ShippedConfigsFolder()));
  ASSIGN_OR_RETURN(ConfigFile first, ReadConfigFile(found));
  // The list is only appended to. Assigning to a YAML::Node, as moving elements
  // within a vector does, would change the document of the node.
  std::vector<ConfigFile> files = {std::move(first)};
  while (files.back().extended()) {
    const ConfigFile& file = files.back();
    const YAML::Node extended = file.extended();
    if (!extended.IsScalar() || extended.Scalar().empty()) {
      return ConfigError(absl::StrCat(
          Printable(file.path), ": extends: the path of a file is expected"));
    }
    if (files.size() > kMaxExtended) {
      return ConfigError(absl::StrCat(Printable(path),
                                      " extends more than ",
                                      kMaxExtended,
                                      " files, or itself"));
    }
    const std::filesystem::path folder =
        std::filesystem::path(file.path).parent_path();
    std::string written = extended.Scalar();
    if (const std::string wrong = ExpandUserPath(&written); !wrong.empty()) {
      return ConfigError(
          absl::StrCat(Printable(file.path), ": extends: ", Printable(wrong)));
    }
    const std::filesystem::path base_path = folder / written;
    std::error_code error;
    if (!std::filesystem::is_regular_file(base_path, error)) {
      return ConfigError(absl::StrCat(Printable(file.path),
                                      ": extends: ",
                                      Printable(base_path.string()),
                                      " is not a file"));
    }
    ASSIGN_OR_RETURN(ConfigFile base, ReadConfigFile(base_path.string()));
    files.push_back(std::move(base));
  }
  return std::vector<ConfigFile>(files.rbegin(), files.rend());
}

}  // namespace dapd
