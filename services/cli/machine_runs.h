// The runs on this machine that this user may see: each trainer holds a lock on
// its run's folder.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

struct MachineRun {
  std::string folder;
  std::string address;  // host:port of its status; empty: unknown
};

// Returns the runs sorted by folder. Tests set `proc`.
std::vector<MachineRun> RunsOfThisMachine(const std::string& proc = "/proc");

// Returns the address at which this machine reaches a service that listens at
// `listen`, which may be every address.
std::string ReachableHere(const std::string& listen);

}  // namespace dapd
