// A configuration written out: as YAML for a run folder, as JSON for programs,
// and all keys as the documentation lists them.
#pragma once

#include <string>

#include "common/base/json.h"
#include "common/config/load_config.h"

namespace dapd {

// Returns the merged configuration as YAML, each line with its origin as a
// comment; LoadConfig of it gives the same Config.
std::string DumpConfig(const LoadedConfig& loaded);

// Returns {"run": {"name": "laboratory", ...}, ...}: every key of the merged
// configuration, in the order of the documentation. Numbers, truth values and
// lists are JSON's; an infinite number, which JSON has not got, is the text
// ".inf", as YAML spells it.
nlohmann::ordered_json ConfigJson(const LoadedConfig& loaded);

// Returns the text of docs/configuration.md.
std::string ConfigReference();

}  // namespace dapd
