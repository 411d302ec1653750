// The part of a configuration that determines the result of a run, and that a
// resumed run must find unchanged.
#pragma once

#include <map>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Returns key -> value (as YAML text) of every key, except for keys that may
// change (ConfigKey::may_change) and newer keys with their default value
// (ConfigKey::counts_unless_default). The content of the model and of the data
// is recorded separately: see RunIdentity.
std::map<std::string, std::string> ResultSettings(const Config& config);

// Returns whether `key` may change when a run is resumed. The record of a run
// that an earlier version began may contain such a key.
bool MayChangeOnResume(const std::string& key);

}  // namespace dapd
