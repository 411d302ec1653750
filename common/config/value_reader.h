// One YAML value into the target of a key, with its type and range checked.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "common/config/config_keys.h"

namespace dapd {

// Empty if the value was taken; else what is wrong with it.
std::string ReadValue(const YAML::Node& node, const ConfigKey& key);

}  // namespace dapd
