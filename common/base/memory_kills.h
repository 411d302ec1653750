// How often the kernel has killed processes for want of memory: what tells such
// a SIGKILL from somebody's.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

struct MemoryKills {
  int64_t count = -1;  // negative: nobody says
  // Every such kill of a child of this process is among them, and none that a
  // kernel too old, or only emulated, leaves out.
  bool is_complete = false;
};

// The count of this process's control group and the groups below it
// (memory.events), since its children are in it; where there is none of version
// 2, of version 1 (memory.oom_control) or of the machine (/proc/vmstat).
// `root`: for tests, what stands before /proc and /sys.
MemoryKills CountMemoryKills(const std::string& root = "");

// For the end of a sentence that says that a process was killed by SIGKILL
// between the two: ", by the kernel for want of memory", or as far as they
// tell.
std::string WhoKilled(const MemoryKills& before, const MemoryKills& after);

}  // namespace dapd
