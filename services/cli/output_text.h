// What `dapd check` says of the folders that a run writes.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// A warning for each of them, the run's own and one at checkpoint.copy_to, that
// this user could not write or create on this machine. Creates nothing.
std::vector<std::string> OutputWarnings(const Config& config);

}  // namespace dapd
