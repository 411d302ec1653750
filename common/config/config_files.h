// The files that a configuration is read from: the one that is named, and those
// that it extends.
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

  // Undefined: it extends none.
  YAML::Node extended() const;
};

// The file at `path`, which may be the name of a configuration that is shipped
// (shipped_configs.h), behind those that it extends, each of at most 1 MiB.
// What cannot be read, is no strict YAML (strict_yaml.h) or extends more than 8
// files, such as itself, is an error with exit code kConfig that names the
// file.
absl::StatusOr<std::vector<ConfigFile>> ReadConfigFiles(
    const std::string& path);

}  // namespace dapd
