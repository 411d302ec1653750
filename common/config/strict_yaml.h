// The YAML of configurations and sweeps: one document, without anchors, aliases
// and tags, in whose maps no key occurs twice.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace dapd {

// Throws YAML::Exception: for what is no YAML, and for an alias, which lets a
// small file stand for an endless one, or a tag, a second document or a key's
// second value, which would be ignored.
YAML::Node ParseStrictYaml(const std::string& text);

}  // namespace dapd
