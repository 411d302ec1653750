// Reads one YAML value into the target of a key and checks its type and range.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "common/config/config_keys.h"

namespace dapd {

// Returns an empty text if the value was taken, otherwise what is wrong with
// it.
std::string ReadValue(const YAML::Node& node, const ConfigKey& key);

// Expands the path of an address that begins with kFilePrefix. Returns what is
// wrong with the path, or an empty text.
std::string ExpandFileAddress(std::string* address);

}  // namespace dapd
