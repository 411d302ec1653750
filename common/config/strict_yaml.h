// The YAML of configurations: one document, without anchors and aliases.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace dapd {

// Throws YAML::Exception: for what is no YAML, and for an alias, which lets a
// small file stand for an endless one, or a second document, which would be
// ignored.
YAML::Node ParseStrictYaml(const std::string& text);

}  // namespace dapd
