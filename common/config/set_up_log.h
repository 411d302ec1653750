// Sets up the log according to a configuration.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Sets up the log of this process (common/base/log.h). Call it before any
// thread starts, with a `config` of PeekConfig, because mistakes in the
// configuration are logged, too. `rank` is negative if the process is not one
// of several ranks.
void SetUpLog(const std::string& service,
              const Config& config,
              int64_t rank = -1);

}  // namespace dapd
