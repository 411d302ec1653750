// The runs that are under way on this machine, as far as this user may see
// them: by the lock of its run's folder that each trainer holds open.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

struct MachineRun {
  std::string folder;
  std::string address;  // host:port to ask for its status; empty: not known
};

// In the order of their folders. `proc`: for tests, in the place of /proc.
std::vector<MachineRun> RunsOfThisMachine(const std::string& proc = "/proc");

// Where somebody on this machine finds what listens at `listen`, which may be
// every address of it.
std::string ReachableHere(const std::string& listen);

}  // namespace dapd
