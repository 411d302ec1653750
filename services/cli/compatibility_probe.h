// `dapd probe compatibility`; what it measures is common/data/
// gradient_compatibility.h.
#pragma once

#include "common/base/command_line.h"

namespace dapd {

// Adds it to `dapd probe`.
void AddCompatibilityProbe(Command& probe);

}  // namespace dapd
