// Tells how much memory this process can still take.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

// Returns bytes: MemAvailable of /proc/meminfo, or less if a control group (v1
// or v2) that contains this process allows less. Memory that caches a group's
// files counts as free, because the system gives it up before it refuses
// memory. Returns the largest int64_t if nothing can be read. `root` is the
// folder that holds proc and sys, "/" except in tests.
int64_t AvailableMemory(const std::string& root = "/");

}  // namespace dapd
