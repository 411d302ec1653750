// Reads the configuration file that the user names, and the files that it
// extends.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// A file may begin with `extends: PATH`, relative to itself.
inline constexpr char kExtends[] = "extends";

struct ConfigFile {
  std::string path;
  YAML::Node root;

  // Returns the extended file's name; undefined if the file extends no other
  // file.
  YAML::Node extended() const;
};

// Returns the file at `path`, which may be the name of a shipped configuration
// (shipped_configs.h), preceded by the files that it extends. Each file has at
// most kMaxConfigBytes. A file that cannot be read, is not strict YAML
// (strict_yaml.h) or extends more than 8 files (for example itself) is an error
// with exit code kConfig that names the file.
absl::StatusOr<std::vector<ConfigFile>> ReadConfigFiles(
    const std::string& path);

}  // namespace dapd
