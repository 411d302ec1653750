// A configuration for programs.
#pragma once

#include "common/base/json.h"
#include "common/config/load_config.h"

namespace dapd {

// {"run": {"name": "laboratory", ...}, ...}: every key of the merged
// configuration, in the order of the documentation. Numbers, truth values and
// lists are JSON's; an infinite number, which JSON has not got, is the text
// ".inf", as YAML spells it.
nlohmann::ordered_json ConfigJson(const LoadedConfig& loaded);

}  // namespace dapd
