// Which part of a configuration a run's result depends on: what a resumed run
// must find unchanged.
#pragma once

#include <map>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Key -> value as YAML text, of every key but those that may change
// (ConfigKey::may_change) and later keys that have their default
// (ConfigKey::counts_unless_default). The model and the data count by their
// content: see RunIdentity.
std::map<std::string, std::string> ResultSettings(const Config& config);

// Whether that key may. A run that an earlier version began may have recorded
// it all the same.
bool MayChangeOnResume(const std::string& key);

}  // namespace dapd
