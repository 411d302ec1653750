// The log as a configuration wants it.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"

namespace dapd {

// Sets the log of this process (common/base/log.h) up, before any thread
// starts. `config`: of PeekConfig, since what is wrong with it is logged, too.
// `rank`: negative where the process is none of several.
void SetUpLog(const std::string& service,
              const Config& config,
              int64_t rank = -1);

}  // namespace dapd
