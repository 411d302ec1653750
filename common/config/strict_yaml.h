// The YAML of configurations and sweeps: one document, without anchors, aliases
// and tags, in whose maps no key occurs twice.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace dapd {

// Throws YAML::Exception for invalid YAML; for an alias, by which a small file
// could stand for an endless one; and for a tag, a second document or a second
// value of a key, which would be ignored.
YAML::Node ParseStrictYaml(const std::string& text);

}  // namespace dapd
