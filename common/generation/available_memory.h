// How much memory this process can still take.
#pragma once

#include <cstdint>

namespace dapd {

// Bytes: what /proc/meminfo calls MemAvailable, or less where the control group
// (v2) of this process allows less. The largest int64_t where neither can be
// read.
int64_t AvailableMemory();

}  // namespace dapd
