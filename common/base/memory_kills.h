// Counts how often the kernel has killed processes because memory ran out, to
// tell such a SIGKILL from the SIGKILL of a person or program.
#pragma once

#include <cstdint>
#include <string>

namespace dapd {

struct MemoryKills {
  int64_t count = -1;  // negative: nobody says
  // Whether the count includes every such kill of a child of this process. An
  // old kernel, or an emulated one, leaves some out.
  bool is_complete = false;
};

// Returns the count of the control group of this process and the groups below
// it, which contain its children (memory.events). Without control groups of
// version 2, returns the count of version 1 (memory.oom_control) or of the
// machine (/proc/vmstat). `root` stands before /proc and /sys in tests.
MemoryKills CountMemoryKills(const std::string& root = "");

// Returns the end of a sentence that says that a process was killed by SIGKILL
// between two counts: ", by the kernel for want of memory", or a less certain
// text.
std::string WhoKilled(const MemoryKills& before, const MemoryKills& after);

}  // namespace dapd
