// Which part of a configuration a run's result depends on: what a resumed run
// must find unchanged.
#pragma once

#include <map>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Key -> value as YAML text, of every key but those that only say where things
// are (paths, addresses, names), who helps (workers, threads, ranks), what is
// written or measured (checkpoint, evaluation, metrics, security), how long to
// wait, and how many steps to take in all. The model and the data count by
// their content: see RunIdentity.
std::map<std::string, std::string> ResultSettings(const Config& config);

}  // namespace dapd
