// How much memory this process can still take.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// Bytes: what /proc/meminfo calls MemAvailable, or less where a control group
// (v1 or v2) that this process is in allows less: its own, or one around it.
// Memory that holds a group's files counts as free, as the system gives it up
// before it refuses memory. The largest int64_t where nothing can be read.
// `root`: the folder that holds proc and sys, "/" but in tests.
int64_t AvailableMemory(const std::string& root = "/");

}  // namespace dapd
