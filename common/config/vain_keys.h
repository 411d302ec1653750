// Keys that are given and have no effect beside the others.
#pragma once

#include <string>
#include <vector>

#include "common/config/load_config.h"

namespace dapd {

// A warning for each key that is given in vain: that the preset's terms do not
// read, unless objective.terms replace them; and evaluation.samples where
// evaluation.temperature is 0; and run.gpus where model.device is cpu.
std::vector<std::string> WarningsOfVainKeys(const LoadedConfig& loaded);

}  // namespace dapd
