// A configuration as a run folder keeps it, and all keys as the documents list
// them.
#pragma once

#include <string>

#include "common/config/load_config.h"

namespace dapd {

// The merged configuration as YAML, each line with its origin as a comment;
// LoadConfig of it gives the same Config.
std::string DumpConfig(const LoadedConfig& loaded);

// docs/configuration.md.
std::string ConfigReference();

}  // namespace dapd
