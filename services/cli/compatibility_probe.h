// `dapd probe compatibility`; common/data/gradient_compatibility.h defines its
// measures.
#pragma once

#include "common/base/command_line.h"

namespace dapd {

// Adds the subcommand to `dapd probe`.
void AddCompatibilityProbe(Command& probe);

}  // namespace dapd
